//! The form that sets the order of a queue.

use maud::{Markup, html};
use serde::Deserialize;

use super::order_read::Order;
use crate::console::edited::Edited;
use crate::console::fields::{self, area, choice, given, hidden, line};
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Visit};

#[derive(Deserialize)]
pub(crate) struct Setting {
    /// Name of the queue.
    pub(super) name: String,
    reason: String,
    #[serde(flatten)]
    pub(super) values: Edited,
}

const NAMES: [&str; 5] = ["by", "strict", "on_discard", "fair", "weights"];
/// The fields whose problems are shown below them.
const TYPED: [&str; 2] = ["by", "weights"];
const YES_NO: [(&str, &str); 2] = [("false", "No"), ("true", "Yes")];
const ON_DISCARD: [(&str, &str); 2] = [("continue", "Continue"), ("block", "Block the key")];

impl Setting {
    /// What is set of a queue.
    pub(super) fn of(queue: &str, order: Option<&Order>) -> Self {
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        let values = Edited::of([
            ("by", text(order.map(|order| &*order.by))),
            ("strict", order.is_some_and(|order| order.strict).to_string()),
            ("on_discard", text(order.map(|order| &*order.on_discard).or(Some("continue")))),
            ("fair", order.is_some_and(|order| order.fair).to_string()),
            ("weights", text(order.and_then(|order| order.weights.as_deref()))),
        ]);
        Self { name: queue.into(), reason: String::new(), values }
    }
}

pub(super) fn form(visit: &Visit, set: &Setting, wrong: Option<&Problem>) -> Markup {
    let value = |name| set.values.get(name);
    html! {
        (fields::wrong(wrong, &TYPED))
        (visit.form("/order/set#order", html! {
            (hidden("name", &set.name))
            (set.values.before(NAMES))
            (line("by", "Key", "What makes a job's key, as JSON, such as {\"by_args\": [\"tenant\"]}.", value("by"), wrong))
            p.help {
                "Strict: jobs of a key start one at a time, in sequence; a discarded job can block its key. "
                "Fair: keys share the starts by weight."
            }
            div.fields {
                (choice("strict", "Strict", &YES_NO, value("strict")))
                (choice("on_discard", "On discard", &ON_DISCARD, value("on_discard")))
                (choice("fair", "Fair", &YES_NO, value("fair")))
            }
            (area("weights", "Weights", "Of keys in a fair order, as JSON, such as {\"acme\": 3}. Empty: all keys have weight 1.", value("weights"), wrong))
            (line("reason", "Reason", "For the audit.", &set.reason, wrong))
            div.actions { (parts::button("Save order", Look::Primary)) }
        }))
    }
}

/// Sets the whole order, with the values of the form.
pub(super) async fn define(change: &mut Change<Setting>, now: &Edited) -> Result<(), Problem> {
    change.form.values.changed(NAMES, now)?;
    let form = &change.form;
    let value = |name| form.values.get(name);
    let set = change
        .run(
            "select from jobs.order_queue($1, $2::text::jsonb, $3::text::boolean, $4, $5::text::boolean,
                                          $6::text::jsonb, $7)",
            &[
                &form.name,
                &given(value("by")),
                &value("strict"),
                &value("on_discard"),
                &value("fair"),
                &given(value("weights")),
                &given(&form.reason),
            ],
        )
        .await;
    set.map_err(|wrong| wrong.about_quoted(TYPED.map(|name| (name, value(name)))))
}
