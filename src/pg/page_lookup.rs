//! Looking up many rows, each by its key, where those that are looked for together were mostly
//! inserted together: with a row that was found along the index come the others of its page, which
//! costs less than looking for a second one.

use std::collections::HashMap;
use std::hash::Hash;

use super::index::IndexShape;
use super::row::Row;
use super::scan::{Key, Scan, Seen};
use super::table::Table;

/// Pages that are read in advance of what comes of it. More are read as long as each brings one row
/// that is looked for.
const ON_TRUST: usize = 16;
/// With more rows than this, those that were not asked for are forgotten.
const MOST: usize = 100_000;

/// What is read of a row: its key and its value; `None`: it will not be looked for.
type Read<'a, K, V> = Box<dyn Fn(&Row) -> Option<(K, V)> + 'a>;

/// A table in which rows are looked up.
pub struct PageLookup<'a, K, V> {
    table: &'a Table,
    seen: &'a Seen,
    scan: Scan<'a>,
    read: Read<'a, K, V>,
    known: HashMap<K, V>,
    pages: usize,
    hits: usize,
}

impl<'a, K: Hash + Eq, V> PageLookup<'a, K, V> {
    /// Looks rows up along a unique index of one column. Where two versions of a row are seen,
    /// either may be found.
    pub fn new(
        table: &'a Table,
        index: &IndexShape,
        seen: &'a Seen,
        read: impl Fn(&Row) -> Option<(K, V)> + 'a,
    ) -> Self {
        PageLookup {
            table,
            seen,
            scan: table.scan(index, seen, 1),
            read: Box::new(read),
            known: HashMap::new(),
            pages: 0,
            hits: 0,
        }
    }

    /// What was read of the row with this key, which is `by` in the index. It is to be looked for
    /// once.
    pub fn take(&mut self, key: &K, by: impl FnOnce() -> Key) -> Option<V> {
        if let Some(value) = self.known.remove(key) {
            self.hits += 1;
            return Some(value);
        }
        let row = self.scan.first(&[by()])?;
        if self.pages >= ON_TRUST + self.hits {
            return (self.read)(&row).map(|(_, value)| value);
        }
        self.pages += 1;
        if self.known.len() > MOST {
            self.known.clear();
        }
        let (known, read) = (&mut self.known, &self.read);
        self.table.for_each_beside(row.tid(), self.seen, |row| known.extend(read(row)));
        // It may have moved to another page since it was found.
        let found = self.known.remove(key);
        found.or_else(|| (self.read)(&row).map(|(_, value)| value))
    }
}
