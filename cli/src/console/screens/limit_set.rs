//! The forms that set a limit, and what holds for one key of it.

use std::iter;

use maud::{Markup, html};

use super::limit_read::{Key, Limit};
use super::queue_limits::{interval_of, number, number_value, period_value};
use super::setting::Setting;
use crate::console::edited::Edited;
use crate::console::fields::line;
use crate::console::problem::Problem;
use crate::console::visit::{Change, Visit};

/// Concurrency, rate and period, as typed.
type Typed<'a> = (Option<i32>, Option<i32>, Option<&'a str>);

/// The names of the fields, their labels and notes.
const FIELDS: [(&str, &str, &str); 3] = [
    ("concurrency", "Concurrency", "Jobs running at once (1 to 10,000). Empty: no limit."),
    ("rate", "Rate", "Jobs started per rate period (1 to 100,000). Empty: no limit."),
    ("rate_period", "Rate period", "Such as 1 minute. Required with a rate."),
];
/// The field with a key, as JSON.
pub(super) const KEY: &str = "key";
const NAMES: [&str; 4] = [KEY, "concurrency", "rate", "rate_period"];

/// The form of a limit.
pub(super) fn setting(limit: &Limit) -> Setting {
    Setting::of(&limit.name, values(limit.concurrency, limit.rate, &limit.rate_period))
}

/// The form of a key, empty without an override.
pub(super) fn key_setting(limit: &Limit, key: &str, set: &Key) -> Setting {
    let own = match set.overridden {
        true => values(set.concurrency, set.rate, &set.rate_period),
        false => values(None, None, &None),
    };
    Setting::of(&limit.name, iter::once((KEY, key.to_owned())).chain(own))
}

fn values(
    concurrency: Option<i32>,
    rate: Option<i32>,
    period: &Option<String>,
) -> [(&'static str, String); 3] {
    [
        ("concurrency", number_value(concurrency)),
        ("rate", number_value(rate)),
        ("rate_period", period_value(period)),
    ]
}

fn typed(set: &Setting) -> Result<Typed<'_>, Problem> {
    Ok((
        number("concurrency", set.get("concurrency"))?,
        number("rate", set.get("rate"))?,
        interval_of(set.get("rate_period")),
    ))
}

pub(super) fn form(visit: &Visit, path: &str, set: &Setting, wrong: Option<&Problem>) -> Markup {
    let is_key = set.values.has(KEY);
    let fields = html! {
        @if is_key {
            (line(KEY, "Key", "As JSON, such as {\"args\": {\"tenant\": \"acme\"}}. If the limit is by one path, its value will do.", set.get(KEY), wrong))
            p.help { "This is the whole limit of the key. Empty fields: as the other keys." }
        }
        div.fields {
            @for (name, label, help) in FIELDS { (line(name, label, help, set.get(name), wrong)) }
        }
    };
    let button = if is_key { "Save override" } else { "Save limit" };
    set.form(visit, path, wrong, &NAMES, fields, button)
}

/// Defines the limit again, with the values of the form.
pub(super) async fn define(change: &mut Change<Setting>, now: &Edited) -> Result<(), Problem> {
    change.form.values.changed(NAMES, now)?;
    let form = &change.form;
    let (concurrency, rate, period) = typed(form)?;
    let defined = change
        .run(
            "select jobs.define_limit(l.name, l.by, l.queues, l.kinds, $2, $3, $4::text::interval,
                                      l.per_cell, $5)::text
               from jobs.limits l where l.name = $1",
            &[&form.name, &concurrency, &rate, &period, &form.reason()],
        )
        .await;
    defined.map_err(|wrong| form.about(wrong, NAMES))
}

/// Sets what holds for the key of the form.
pub(super) async fn set_key(change: &mut Change<Setting>, now: &Edited) -> Result<(), Problem> {
    change.form.values.changed(FIELDS.map(|(name, ..)| name), now)?;
    let form = &change.form;
    let (concurrency, rate, period) = typed(form)?;
    let set = change
        .run(
            "select from jobs.override_limit($1, $2::text::jsonb, $3, $4, $5::text::interval, $6)",
            &[&form.name, &form.get(KEY), &concurrency, &rate, &period, &form.reason()],
        )
        .await;
    set.map_err(|wrong| form.about(wrong, NAMES))
}
