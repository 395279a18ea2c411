//! The filter of jobs in addresses and in words.

use std::borrow::Cow;

use maud::{Markup, html};

use super::parts;
use super::room::text;
use crate::filter::Filter;

impl Filter {
    /// A path with this filter and other pairs in its query.
    pub(crate) fn path(&self, path: &str, more: &[(&str, &str)]) -> String {
        parts::link(&parts::link(path, self), more)
    }

    /// The filter in words: "jobs of kind k in queue q".
    pub(crate) fn in_words(&self) -> Markup {
        let said = |before: &'static str, value: &str| {
            let value: Cow<str> = value.into();
            html! { @if !value.is_empty() { (before) strong { (text(&value)) } } }
        };
        html! {
            @if !self.state.is_empty() { strong { (self.state) } " " }
            "jobs"
            (said(" of kind ", &self.kind))
            (said(" in queue ", &self.queue))
            (said(" with tag ", &self.tag))
            (said(" of worker ", &self.worker))
            (said(" whose args contain ", &self.args))
            (said(" whose latest error contains ", &self.error))
            (said(" whose latest error matches ", &self.error_like))
            (said(" that last failed after ", &self.failed_after))
            (said(" inserted from ", &self.after))
            (said(" inserted before ", &self.before))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_the_whole_filter() {
        let filter = Filter { kind: "a&b".into(), error: "100 %".into(), ..Filter::default() };
        let path = filter.path("/jobs", &[("from", "7")]);
        assert_eq!(path, "/jobs?kind=a%26b&error=100+%25&from=7");
    }
}
