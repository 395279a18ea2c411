//! A form that edits existing values. It also has each value as it was before, so that only changed
//! fields are set, and a change by someone else is never overwritten unnoticed.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;

use super::fields::hidden;
use super::problem::Problem;

/// Texts by the names of fields. With `#[serde(flatten)]` it takes the remaining fields of a form.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Edited(BTreeMap<String, String>);

/// The name of a field with the value before begins so.
const WAS: &str = "was_";

fn was(name: &str) -> String {
    format!("{WAS}{name}")
}

/// Browsers end lines with CRLF.
fn plain(text: &str) -> String {
    text.trim().replace("\r\n", "\n")
}

impl Edited {
    /// Values that have not been changed yet.
    pub(crate) fn of<'a>(values: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let twice =
            |(name, value): (&str, String)| [(was(name), value.clone()), (name.into(), value)];
        Self(values.into_iter().flat_map(twice).collect())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.trim())
    }

    /// The hidden fields with the values before.
    pub(crate) fn before(&self) -> Markup {
        html! {
            @for (name, value) in self.0.iter().filter(|(name, _)| name.starts_with(WAS)) {
                (hidden(name, value))
            }
        }
    }

    /// The changed fields. Fails if someone else has changed one of them since; the form then has
    /// the present value as the one before.
    pub(crate) fn changed(
        &mut self,
        names: impl IntoIterator<Item = &'static str>,
        now: &Self,
    ) -> Result<BTreeMap<&'static str, String>, Problem> {
        let mut changed = BTreeMap::new();
        for name in names {
            let value = plain(self.get(name));
            let before = was(name);
            if value == plain(self.get(&before)) {
                continue;
            }
            let present = now.get(name);
            if plain(self.get(&before)) != plain(present) {
                self.0.insert(before, present.into());
                return Err(meanwhile(name, present));
            }
            changed.insert(name, value);
        }
        match changed.is_empty() {
            true => Err(Problem::bad_input("Nothing changed.", "Change a field or go back.")),
            false => Ok(changed),
        }
    }
}

fn meanwhile(name: &str, present: &str) -> Problem {
    let present = if present.is_empty() { "empty" } else { present };
    let message = format!("This was changed by someone else and is now {present}.");
    let hint = "Submit again to overwrite it.";
    Problem::bad_input(message, hint).about(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(of: &[(&str, &str)]) -> Edited {
        let texts = of.iter().map(|(name, text)| (name.to_string(), text.to_string()));
        Edited(texts.collect())
    }

    #[test]
    fn what_is_left_as_it_was_is_not_changed() {
        let now = Edited::of([("args", "{}".into()), ("priority", "1".into())]);
        let mut form = edited(&[
            ("args", "{\r\n  \"n\": 1\r\n}"),
            ("was_args", "{\n  \"n\": 1\n}"),
            ("priority", "2"),
            ("was_priority", "1"),
        ]);
        // A field that the form does not have is none that was emptied.
        let changed = form.changed(["args", "priority", "meta"], &now);
        let expected = BTreeMap::from([("priority", "2".to_owned())]);
        assert!(changed.is_ok_and(|changed| changed == expected));
        assert!(form.changed(["args", "meta"], &now).is_err());
    }

    #[test]
    fn what_others_have_changed_is_replaced_once_it_was_seen() {
        let now = Edited::of([("priority", "5".into())]);
        let mut form = edited(&[("priority", "2"), ("was_priority", "1")]);
        let refused = form.changed(["priority"], &now);
        assert!(refused.is_err_and(|wrong| wrong.field() == Some("priority")));
        assert!(form.changed(["priority"], &now).is_ok());
    }
}
