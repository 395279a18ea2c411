//! Input that breaks a rule, and the words that help its author.

use std::fmt;

/// A value that is refused. It reaches the SQL caller as `22023` (invalid_parameter_value).
///
/// It never carries values out of a job's args or meta, which may be confidential: at most the name
/// of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    name: String,
    /// What is wrong, naming the value; lower case, no full stop.
    pub message: String,
    /// The rule that was broken, as full sentences.
    pub detail: String,
    /// The likely fix, as a full sentence, where there is one.
    pub hint: Option<String>,
}

impl Invalid {
    /// A refusal without a hint. `path` leads to the parameter or member that it is about:
    /// `max_attempts`, `oban.keys`.
    ///
    /// # Panics
    ///
    /// If the path is empty or ends in a dot: a program could not tell what to ask for again.
    pub fn new(path: &str, message: impl Into<String>, detail: impl Into<String>) -> Self {
        let name = path.rsplit('.').next().unwrap_or(path);
        assert!(!name.is_empty(), "a refusal is about something");
        Self { name: name.into(), message: message.into(), detail: detail.into(), hint: None }
    }

    /// The refusal of a name that is none of those `known`. `noun` is what they are.
    pub fn unknown(path: &str, noun: &str, given: &str, known: &[&str]) -> Self {
        let message = format!("{noun} {} of {path} is not known", quoted(given));
        let rule = format!("The {noun}s are {}.", known.join(", "));
        Self::new(path, message, rule).did_you_mean(given, known)
    }

    /// The parameter or member that it is about, by its own name: of `oban.keys` that is `keys`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// This refusal with one more sentence of its rule.
    #[must_use]
    pub(crate) fn also(mut self, rule: &str) -> Self {
        self.detail.push(' ');
        self.detail.push_str(rule);
        self
    }

    /// This refusal with the likely fix.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// This refusal, asking for the candidate that looks most like `word`, if one does.
    #[must_use]
    pub fn did_you_mean(self, word: &str, candidates: &[impl AsRef<str>]) -> Self {
        match did_you_mean(word, candidates) {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Invalid {}

/// A value as messages show it: cut where it is too long to help.
pub fn shown(value: &str) -> String {
    const LONGEST: usize = 100;
    match value.char_indices().nth(LONGEST) {
        None => value.to_string(),
        Some((end, _)) => format!("{}...", &value[..end]),
    }
}

/// A text as messages show it, in quotes, which also stand where it is cut.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(text))
}

/// The hint that asks for the candidate that looks most like `word`, if one does.
pub fn did_you_mean(word: &str, candidates: &[impl AsRef<str>]) -> Option<String> {
    nearest(word, candidates).map(|candidate| format!("Did you mean {}?", quoted(candidate)))
}

/// The candidate that `word` is most likely a misspelling of, if any is near enough to be worth
/// asking.
///
/// Near is one edit (a letter inserted, left out, replaced, or two swapped) for every three letters
/// of `word`, and at least one, but not all of it; upper and lower case are the same. Nothing is
/// near a word of more than a hundred letters, and no more than the first ten thousand
/// candidates are compared.
pub fn nearest<'a>(word: &str, candidates: &'a [impl AsRef<str>]) -> Option<&'a str> {
    // Comparing takes as long as both are together long, and longer names are not misspellings.
    const LONGEST: usize = 100;
    const MOST_CANDIDATES: usize = 10_000;
    let letters = word.chars().take(LONGEST + 1).count();
    if letters > LONGEST {
        return None;
    }
    let limit = (letters / 3).max(1).min(letters.saturating_sub(1));
    let word = word.to_lowercase();
    candidates
        .iter()
        .take(MOST_CANDIDATES)
        .map(AsRef::as_ref)
        .filter(|candidate: &&str| {
            // No more are counted than can matter.
            let length = candidate.chars().take(letters + limit + 1).count();
            length.abs_diff(letters) <= limit
        })
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [&str; 3] = ["by_args", "by_queue", "by_state"];

    #[test]
    fn misspellings_find_their_word() {
        for word in ["by_arg", "by_agrs", "byArgs", "BY_ARGS", "by-args"] {
            assert_eq!(nearest(word, &FIELDS), Some("by_args"), "{word}");
        }
        assert_eq!(nearest("by_states", &FIELDS), Some("by_state"));
    }

    #[test]
    fn other_words_find_none() {
        for word in ["", "x", "priority", "by_something_else", &"a".repeat(1_000_000)] {
            assert_eq!(nearest(word, &FIELDS), None);
        }
        assert_eq!(nearest("by_args", &[""; 0]), None);
    }

    #[test]
    fn a_refusal_is_about_something() {
        for (path, name) in
            [("max_attempts", "max_attempts"), ("oban.keys", "keys"), ("on_conflict.update.*", "*")]
        {
            assert_eq!(Invalid::new(path, "m", "d").name(), name);
        }
        for path in ["", "oban."] {
            let refusal = std::panic::catch_unwind(|| Invalid::new(path, "m", "d"));
            assert!(refusal.is_err(), "{path:?}");
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(quoted("é\"x"), "\"é\"x\"");
        assert_eq!(shown(&"é".repeat(100)), "é".repeat(100));
        for letter in ["x", "é", "日", "😀"] {
            let cut = shown(&letter.repeat(10_000_000 / letter.len()));
            assert_eq!(cut, format!("{}...", letter.repeat(100)));
        }
    }

    #[test]
    fn a_hint_is_added_only_where_there_is_one() {
        let invalid = Invalid::new("unique_opts", "unknown field", "Fields are by_args.");
        assert_eq!(invalid.clone().did_you_mean("zzz", &FIELDS), invalid);
        let hinted = invalid.did_you_mean("by_arg", &FIELDS);
        assert_eq!(hinted.hint.as_deref(), Some("Did you mean \"by_args\"?"));
        assert_eq!(hinted.to_string(), "unknown field");
    }
}
