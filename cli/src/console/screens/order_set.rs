//! The form that sets the order of a queue.

use maud::{Markup, html};

use super::order_read::Order;
use super::setting::Setting;
use crate::console::edited::Edited;
use crate::console::fields::{area, choice, given, line};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Visit};

const NAMES: [&str; 5] = ["by", "strict", "on_discard", "fair", "weights"];
/// The fields whose problems are shown below them.
const TYPED: [&str; 2] = ["by", "weights"];
const YES_NO: [(&str, &str); 2] = [("false", "No"), ("true", "Yes")];
const ON_DISCARD: [(&str, &str); 2] = [("continue", "Continue"), ("block", "Block the key")];

/// The form of a queue, with its order if it has one.
pub(super) fn setting(queue: &str, order: Option<&Order>) -> Setting {
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    let values = [
        ("by", text(order.map(|order| &*order.by))),
        ("strict", order.is_some_and(|order| order.strict).to_string()),
        ("on_discard", text(order.map(|order| &*order.on_discard).or(Some("continue")))),
        ("fair", order.is_some_and(|order| order.fair).to_string()),
        ("weights", text(order.and_then(|order| order.weights.as_deref()))),
    ];
    Setting::of(queue, values)
}

pub(super) fn form(visit: &Visit, set: &Setting, wrong: Option<&Problem>) -> Markup {
    let value = |name| set.get(name);
    let fields = html! {
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
    };
    set.form(visit, "/order/set#order", wrong, &TYPED, fields, "Save order")
}

/// Sets the whole order, with the values of the form.
pub(super) async fn define(change: &mut Change<Setting>, now: &Edited) -> Result<(), Problem> {
    change.form.values.changed(NAMES, now)?;
    let form = &change.form;
    let value = |name| form.get(name);
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
                &form.reason(),
            ],
        )
        .await;
    set.map_err(|wrong| form.about(wrong, TYPED))
}
