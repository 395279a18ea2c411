//! Which types of error are not tried again.

use crate::Invalid;
use crate::error::{quoted, shown};

/// Ends an entry that stands for all types in a name space.
const WILDCARD: &str = ".*";

/// Types of errors: each a type such as `card_declined`, or `auth.*` for every type that begins
/// with `auth.`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorTypes(Vec<String>);

impl ErrorTypes {
    /// Checks a list of entries. `path` is the list's name in messages.
    pub(super) fn parse(entries: Vec<String>, path: &str) -> Result<Self, Invalid> {
        let rule = || {
            format!(
                "{path} must be a list of error types such as \"card_declined\", or \"auth.*\" for all that begin with \"auth.\"."
            )
        };
        for entry in &entries {
            let name = entry.strip_suffix(WILDCARD).unwrap_or(entry);
            if entry.is_empty() {
                return Err(Invalid::new(
                    path,
                    format!("an element of {path} must not be empty"),
                    rule(),
                ));
            }
            // An error type with a star in it does not exist, so the star is meant to
            // stand for something.
            if name.is_empty() || name.contains('*') {
                let invalid = Invalid::new(
                    path,
                    format!("{} of {path} matches no error type", quoted(entry)),
                    rule(),
                );
                let prefix = name.trim_end_matches(['*', '.']);
                return Err(if prefix.is_empty() || prefix.contains('*') {
                    invalid
                } else {
                    invalid.hint(format!("Write \"{}{WILDCARD}\".", shown(prefix)))
                });
            }
        }
        Ok(Self(entries))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this type is one of them. Case matters.
    pub fn contains(&self, error_type: &str) -> bool {
        self.0.iter().any(|entry| match entry.strip_suffix(WILDCARD) {
            // The dot belongs to it: `auth` itself is not in its name space.
            Some(space) => error_type.strip_prefix(space).is_some_and(|rest| rest.starts_with('.')),
            None => entry == error_type,
        })
    }

    /// The entries, in the order in which they were given.
    pub fn entries(&self) -> &[String] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[&str]) -> Result<ErrorTypes, Invalid> {
        let entries = entries.iter().map(ToString::to_string).collect();
        ErrorTypes::parse(entries, "non_retryable")
    }

    #[test]
    fn a_type_matches_itself_or_its_name_space() {
        let types = parse(&["validation.payload_invalid", "auth.*", "Timeout"]).unwrap();
        for (error_type, matches) in [
            ("validation.payload_invalid", true),
            ("validation.payload_invalid.more", false),
            ("validation.schema_error", false),
            ("validation", false),
            ("auth.token_expired", true),
            ("auth.token.expired", true),
            ("auth.", true),
            ("auth", false),
            ("authority.unknown", false),
            ("external.auth.failure", false),
            ("Auth.forbidden", false),
            ("Timeout", true),
            ("timeout", false),
            ("", false),
        ] {
            assert_eq!(types.contains(error_type), matches, "{error_type}");
        }
    }

    #[test]
    fn nothing_matches_an_empty_list() {
        assert!(!parse(&[]).unwrap().contains("auth.forbidden"));
    }

    #[test]
    fn stars_elsewhere_are_refused() {
        for (entry, hint) in [
            ("*", None),
            (".*", None),
            ("auth*", Some("Write \"auth.*\".")),
            ("auth.**", Some("Write \"auth.*\".")),
            ("auth.*.*", Some("Write \"auth.*\".")),
            ("*.auth", None),
            ("a*.b.*", None),
        ] {
            let invalid = parse(&["ok", entry]).unwrap_err();
            assert_eq!(
                invalid.message,
                format!("\"{entry}\" of non_retryable matches no error type")
            );
            assert_eq!(invalid.hint.as_deref(), hint);
        }
        let invalid = parse(&[""]).unwrap_err();
        assert_eq!(invalid.message, "an element of non_retryable must not be empty");
    }
}
