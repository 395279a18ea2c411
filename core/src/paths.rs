//! Paths into a JSON object: which members of it count.

use crate::Invalid;
use crate::error::quoted;
use crate::interrupt;
use crate::text::nfc;

/// A set of paths, as a tree of names, so that one walk through a value finds them all.
///
/// A path together with one that goes further into the same member means the whole member.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The tree, the root first. Kept flat: a path may be as long as a caller likes, and must not
    /// cost stack.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// The member's name in Unicode normal form C; empty for the root.
    name: String,
    /// Whether a path ends here: all of the member's value counts, and there are no children.
    whole: bool,
    /// Indexes of the child nodes, ordered by name.
    children: Vec<usize>,
}

impl Paths {
    /// The node of the object itself.
    pub(crate) const ROOT: usize = 0;

    /// Reads paths such as `user_id` and `address.city`: dots go into objects, `\.` is a dot in a
    /// name and `\\` a backslash. Refused are empty names and a backslash before anything else.
    /// `list` is the list's name in messages.
    pub fn parse(paths: &[String], list: &str) -> Result<Paths, Invalid> {
        let mut tree = Paths { nodes: vec![Node::default()] };
        for path in paths {
            interrupt::check();
            tree.insert(&split(path, list)?);
        }
        Ok(tree)
    }

    /// The top-level members of these names, in which dots and backslashes are nothing special.
    /// Refused are empty names.
    pub fn of_members(names: &[String], list: &str) -> Result<Paths, Invalid> {
        let paths: Vec<_> = names.iter().map(|name| escape(name)).collect();
        Self::parse(&paths, list)
    }

    /// The paths as [`parse`](Self::parse) reads them, ordered by name; those that others make
    /// superfluous are not among them.
    pub fn to_list(&self) -> Vec<String> {
        let mut list = Vec::new();
        let mut path = String::new();
        // The nodes still to be visited, next last, each with how much of `path` leads to it.
        let mut todo = vec![(Self::ROOT, 0)];
        while let Some((node, parent)) = todo.pop() {
            path.truncate(parent);
            if node != Self::ROOT {
                if parent > 0 {
                    path.push('.');
                }
                path.push_str(&escape(self.name(node)));
            }
            if self.is_whole(node) {
                list.push(path.clone());
            }
            let children = self.nodes[node].children.iter().rev();
            todo.extend(children.map(|child| (*child, path.len())));
        }
        list
    }

    fn insert(&mut self, names: &[String]) {
        let mut node = Self::ROOT;
        for name in names {
            if self.nodes[node].whole {
                return;
            }
            node = match self.find(node, name) {
                Ok(child) => child,
                Err(place) => {
                    let child = self.nodes.len();
                    self.nodes.push(Node { name: name.clone(), ..Node::default() });
                    self.nodes[node].children.insert(place, child);
                    child
                }
            };
        }
        self.nodes[node].whole = true;
        self.nodes[node].children.clear();
    }

    /// The child of that normalised name, or the place among the children where it belongs.
    fn find(&self, node: usize, name: &str) -> Result<usize, usize> {
        let children = &self.nodes[node].children;
        children
            .binary_search_by(|child| self.nodes[*child].name.as_str().cmp(name))
            .map(|place| children[place])
    }

    /// How many nodes there are; they are numbered from 0.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The node that a member leads to, if any path goes there.
    pub(crate) fn child(&self, node: usize, name: &str) -> Option<usize> {
        self.find(node, &nfc(name)).ok()
    }

    /// The children of a node.
    pub(crate) fn children(&self, node: usize) -> impl Iterator<Item = usize> {
        self.nodes[node].children.iter().copied()
    }

    /// The nodes that a path leads through, the root not among them. Its names are normalised.
    pub(crate) fn along(&self, path: &[String]) -> impl Iterator<Item = usize> {
        path.iter().scan(Self::ROOT, |node, name| {
            *node = self.find(*node, name).ok()?;
            Some(*node)
        })
    }

    /// The name of the member that leads to a node.
    pub(crate) fn name(&self, node: usize) -> &str {
        &self.nodes[node].name
    }

    /// Whether a path ends at the node, so that all of the member's value counts.
    pub(crate) fn is_whole(&self, node: usize) -> bool {
        self.nodes[node].whole
    }
}

/// The path that goes through members of these names.
pub(crate) fn join(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| escape(name)).collect();
    names.join(".")
}

/// The path that is just this name.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('.', "\\.")
}

/// The names that a path consists of, normalised.
pub(crate) fn split(path: &str, list: &str) -> Result<Vec<String>, Invalid> {
    let mut names = vec![String::new()];
    let mut chars = path.chars();
    while let Some(char) = chars.next() {
        let name = names.last_mut().expect("there is always a name being read");
        match char {
            '.' => names.push(String::new()),
            '\\' => match chars.next() {
                Some(escaped @ ('.' | '\\')) => name.push(escaped),
                _ => return Err(lone_backslash(path, list)),
            },
            char => name.push(char),
        }
    }
    if names.iter().any(String::is_empty) {
        return Err(empty_name(path, list));
    }
    Ok(names.iter().map(|name| nfc(name).into_owned()).collect())
}

fn empty_name(path: &str, list: &str) -> Invalid {
    Invalid::new(
        list,
        format!("path {} of {list} has an empty name", quoted(path)),
        "A path must be one or more member names separated by dots.",
    )
    .hint("Write \"\\.\" for a dot in a name.")
}

fn lone_backslash(path: &str, list: &str) -> Invalid {
    Invalid::new(
        list,
        format!("path {} of {list} has a backslash that escapes nothing", quoted(path)),
        "In a path, a backslash may only precede a dot or another backslash.",
    )
    .hint("Write \"\\\\\" for a backslash in a name.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<String> {
        split(path, "by_args").expect(path)
    }

    fn tree(paths: &[&str]) -> Paths {
        Paths::parse(&paths.iter().map(|path| path.to_string()).collect::<Vec<_>>(), "by_args")
            .unwrap()
    }

    #[test]
    fn dots_separate_names_unless_escaped() {
        assert_eq!(names("user_id"), ["user_id"]);
        assert_eq!(names("address.city"), ["address", "city"]);
        assert_eq!(names(r"a\.b.c\\.\\\."), ["a.b", "c\\", "\\."]);
        assert_eq!(names(" . "), [" ", " "]);
        assert_eq!(names("cafe\u{301}"), ["caf\u{e9}"]);
    }

    #[test]
    fn empty_names_and_lone_backslashes_are_refused() {
        for path in ["", ".", ".a", "a.", "a..b"] {
            assert_eq!(split(path, "by_args"), Err(empty_name(path, "by_args")));
        }
        for path in ["\\", "a\\", "a\\b", "\\n.a"] {
            assert_eq!(split(path, "by_args"), Err(lone_backslash(path, "by_args")));
        }
    }

    #[test]
    fn a_prefix_means_the_whole_member() {
        for paths in [["a", "a.b"], ["a.b", "a"], ["a", "a"]] {
            let tree = tree(&paths);
            let a = tree.child(Paths::ROOT, "a").unwrap();
            assert!(tree.is_whole(a));
            assert_eq!(tree.child(a, "b"), None);
        }
    }

    #[test]
    fn members_are_found_in_any_unicode_form() {
        let tree = tree(&["b.cafe\u{301}", "a", "b.d"]);
        let b = tree.child(Paths::ROOT, "b").unwrap();
        assert!(!tree.is_whole(b));
        for name in ["cafe\u{301}", "caf\u{e9}"] {
            let cafe = tree.child(b, name).unwrap();
            assert!(tree.is_whole(cafe));
            assert_eq!(tree.name(cafe), "caf\u{e9}");
        }
        assert_eq!(tree.child(Paths::ROOT, "d"), None);
    }

    #[test]
    fn paths_are_listed_as_they_are_read() {
        for (paths, list) in [
            (&[][..], &[][..]),
            (&["b", "a"], &["a", "b"]),
            (&["a.c.d", "b", "a.b", "a.c.d.e", "b"], &["a.b", "a.c.d", "b"]),
            (&[r"a\.b.c\\", "cafe\u{301}"], &[r"a\.b.c\\", "caf\u{e9}"]),
        ] {
            assert_eq!(tree(paths).to_list(), list);
            assert_eq!(tree(list).to_list(), list);
        }
    }

    #[test]
    fn members_are_names_as_they_stand() {
        let members = |name: &str| Paths::of_members(&[name.to_string()], "keys");
        for name in ["user_id", "a.b", "\\", r"\.", ".", " "] {
            let members = members(name).unwrap();
            assert!(members.is_whole(members.child(Paths::ROOT, name).unwrap()));
        }
        assert!(members("").is_err());
    }

    #[test]
    fn a_path_may_be_long() {
        let mut paths = tree(&[&vec!["a"; 100_000].join(".")]).clone();
        paths.insert(&["a".into(), "b".into()]);
        assert_eq!(paths.nodes(), 100_002);
        assert_eq!(paths.to_list()[1], "a.b");
    }
}
