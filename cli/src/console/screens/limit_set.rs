//! The forms that set a limit, and what holds for one key of it.

use maud::{Markup, html};
use serde::Deserialize;

use super::limit_read::{Key, Limit};
use super::queue_limits::{interval_of, number, number_value, period_value};
use crate::console::edited::Edited;
use crate::console::fields::{self, given, hidden, line};
use crate::console::parts::{self, Look};
use crate::console::problem::Problem;
use crate::console::visit::{Change, Visit};

/// What a form sets of a limit or, with a key, of that alone.
#[derive(Deserialize)]
pub(crate) struct Setting {
    pub(super) name: String,
    reason: String,
    /// An empty value means no limit.
    #[serde(flatten)]
    pub(super) values: Edited,
}

/// Concurrency, rate and period, as typed.
type Typed<'a> = (Option<i32>, Option<i32>, Option<&'a str>);

/// The names of the fields, their labels and notes.
const FIELDS: [(&str, &str, &str); 3] = [
    ("concurrency", "Concurrency", "Jobs running at once (1 to 10,000). Empty: no limit."),
    ("rate", "Rate", "Jobs started per rate period (1 to 100,000). Empty: no limit."),
    ("rate_period", "Rate period", "Such as 1 minute. Required with a rate."),
];
const NAMES: [&str; 4] = ["key", "concurrency", "rate", "rate_period"];

impl Setting {
    /// What is set of a limit.
    pub(super) fn of(limit: &Limit) -> Self {
        let Limit { name, concurrency, rate, rate_period, .. } = limit;
        Self::new(name, None, (*concurrency, *rate, rate_period))
    }

    /// What is set of a key. Without an override all is empty.
    pub(super) fn of_key(limit: &Limit, key: &str, set: &Key) -> Self {
        let own = (set.concurrency, set.rate, &set.rate_period);
        let own = if set.overridden { own } else { (None, None, &None) };
        Self::new(&limit.name, Some(key), own)
    }

    fn new(
        name: &str,
        key: Option<&str>,
        (concurrency, rate, period): (Option<i32>, Option<i32>, &Option<String>),
    ) -> Self {
        let values = [
            ("concurrency", number_value(concurrency)),
            ("rate", number_value(rate)),
            ("rate_period", period_value(period)),
        ];
        let key = key.map(|key| ("key", key.to_owned()));
        let values = Edited::of(key.into_iter().chain(values));
        Self { name: name.into(), reason: String::new(), values }
    }

    /// As JSON.
    pub(super) fn key(&self) -> &str {
        self.values.get("key")
    }

    fn typed(&self) -> Result<Typed<'_>, Problem> {
        let value = |name| self.values.get(name);
        let (concurrency, rate) = (value("concurrency"), value("rate"));
        Ok((
            number("concurrency", concurrency)?,
            number("rate", rate)?,
            interval_of(value("rate_period")),
        ))
    }

    fn about(&self, wrong: Problem) -> Problem {
        wrong.about_quoted(NAMES.map(|name| (name, self.values.get(name))))
    }
}

pub(super) fn form(visit: &Visit, path: &str, set: &Setting, wrong: Option<&Problem>) -> Markup {
    let is_key = set.values.has("key");
    html! {
        (fields::wrong(wrong, &NAMES))
        (visit.form(path, html! {
            (hidden("name", &set.name))
            (set.values.before(NAMES))
            @if is_key {
                (line("key", "Key", "As JSON, such as {\"args\": {\"tenant\": \"acme\"}}. If the limit is by one path, its value will do.", set.key(), wrong))
                p.help { "This is the whole limit of the key. Empty fields: as the other keys." }
            }
            div.fields {
                @for (name, label, help) in FIELDS {
                    (line(name, label, help, set.values.get(name), wrong))
                }
            }
            (line("reason", "Reason", "For the audit.", &set.reason, wrong))
            div.actions { (parts::button(if is_key { "Save override" } else { "Save limit" }, Look::Primary)) }
        }))
    }
}

/// Defines the limit again, with the values of the form.
pub(super) async fn define(change: &mut Change<Setting>, now: &Edited) -> Result<(), Problem> {
    change.form.values.changed(NAMES, now)?;
    let form = &change.form;
    let (concurrency, rate, period) = form.typed()?;
    let defined = change
        .run(
            "select jobs.define_limit(l.name, l.by, l.queues, l.kinds, $2, $3, $4::text::interval,
                                      l.per_cell, $5)::text
               from jobs.limits l where l.name = $1",
            &[&form.name, &concurrency, &rate, &period, &given(&form.reason)],
        )
        .await;
    defined.map_err(|wrong| form.about(wrong))
}

/// Sets what holds for the key of the form.
pub(super) async fn set_key(change: &mut Change<Setting>, now: &Edited) -> Result<(), Problem> {
    change.form.values.changed(FIELDS.map(|(name, ..)| name), now)?;
    let form = &change.form;
    let (concurrency, rate, period) = form.typed()?;
    let set = change
        .run(
            "select from jobs.override_limit($1, $2::text::jsonb, $3, $4, $5::text::interval, $6)",
            &[&form.name, &form.key(), &concurrency, &rate, &period, &given(&form.reason)],
        )
        .await;
    set.map_err(|wrong| form.about(wrong))
}
