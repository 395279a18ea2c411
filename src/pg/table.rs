//! Our own tables, read and written without the executor: opening them and writing rows. Reading is
//! in [`super::scan`]. docs/internals/direct-access.md says why, and when. Where a role has
//! attached something to a table, [`Table::open`] says no, and the caller runs an ordinary
//! statement. Row security that hides rows from the owner is an error.

use std::cell::Cell;

use pgrx::itemptr::item_pointer_get_block_number;
use pgrx::pg_sys::{self, Datum, Oid, Relation};
use pgrx::{PgSqlErrorCode, ereport};
use smallvec::{SmallVec, smallvec};

use super::index::{Duplicates, Index, IndexShape, Upkeep};
use super::memory::Scratch;
use super::name::{Name, label_of};
use super::row::{NewRow, Row, Tid, Value};
use super::scan::{Key, Seen};
use super::transaction::{has_written, is_read_committed, make_visible};
use super::versions;
use crate::error::Error;
use crate::settings;

/// As many as any of these tables has, and a few that others have added and dropped.
pub(super) const MOST_COLUMNS: usize = 32;

/// Rows that are inserted with one record of WAL a page. Making more slots would take longer than
/// that saves.
const AT_ONCE: usize = 32;

/// So many rows are best looked for, then deleted: each of these finds its code in the processor's
/// caches.
pub const TOGETHER: usize = 256;

/// A table as its install script makes it.
pub struct Shape {
    pub name: Name,
    /// Its primary key.
    pub key: IndexShape,
    /// Other indexes that scans use.
    pub others: &'static [&'static IndexShape],
    /// The types of its columns; an invalid one stands for any.
    pub columns: &'static [Oid],
    /// How many of them are NOT NULL.
    pub not_null: usize,
}

/// A table that is open until the end of the call; its lock is kept until the end of the
/// transaction.
pub struct Table {
    pub(super) relation: Relation,
    pub(super) indexes: SmallVec<[Index; 4]>,
    /// Publications allow deletes.
    may_delete: Cell<bool>,
}

impl Table {
    /// Opens a table to be written to; `None`: it is not as it was made, use a statement.
    pub fn open(shape: &Shape) -> Option<Table> {
        // SAFETY: open relations are closed when this is dropped, or by Postgres after an error.
        unsafe {
            let lock = pg_sys::RowExclusiveLock as i32;
            let mut table = Table::open_alone(shape, lock)?;
            let list = pg_sys::RelationGetIndexList(table.relation);
            for index in members(list) {
                // A lock of its own: there are commands that lock an index alone and move its file.
                let relation = pg_sys::index_open(index.oid_value, lock);
                match Index::to_write(relation) {
                    Upkeep::Entry(index) => table.indexes.push(index),
                    other => {
                        pg_sys::index_close(relation, pg_sys::NoLock as i32);
                        if matches!(other, Upkeep::Unknown) {
                            return None;
                        }
                    }
                }
            }
            table.has(&shape.key).then_some(table)
        }
    }

    /// Whether a table has other indexes than those it was made with: one of them is being rebuilt,
    /// or one was made. Such an index is used only once every session has closed the table that
    /// has opened it before, as this does for a writer.
    pub fn has_more_indexes(shape: &Shape) -> bool {
        // SAFETY: as above.
        unsafe {
            let lock = pg_sys::RowExclusiveLock as i32;
            Table::open_as_it_is(shape, lock).is_some_and(|table| {
                let list = pg_sys::RelationGetIndexList(table.relation);
                members(list).len() > 1 + shape.others.len()
            })
        }
    }

    /// Whether it has this index, and rows can be looked for along it.
    pub fn has(&self, index: &IndexShape) -> bool {
        // SAFETY: open indexes.
        let is = |open: &Index| unsafe { index.is(open.relation, self.relation) };
        self.indexes.iter().any(is)
    }

    /// Opens a table to be looked into along one index; `None`: it is not as it was made.
    pub fn open_to_read(shape: &Shape, index: &'static IndexShape) -> Option<Table> {
        // SAFETY: as above.
        unsafe {
            let lock = pg_sys::AccessShareLock as i32;
            let mut table = Table::open_alone(shape, lock)?;
            let relation = pg_sys::try_index_open(index.name.oid(), lock);
            if relation.is_null() {
                return None;
            }
            table.indexes.push(Index::to_read(relation, index));
            index.is(relation, table.relation).then_some(table)
        }
    }

    /// Opens a table to be looked into along its primary key, whatever others have made of both.
    pub fn open_as_it_is_to_read(shape: &'static Shape) -> Table {
        let lock = pg_sys::AccessShareLock as i32;
        // SAFETY: as above; an error where one of them is not there.
        unsafe {
            let relation = pg_sys::table_open(shape.name.oid(), lock);
            let key = pg_sys::index_open(shape.key.name.oid(), lock);
            Table {
                relation,
                indexes: smallvec![Index::to_read(key, &shape.key)],
                may_delete: Cell::new(false),
            }
        }
    }

    /// Opens a table without its indexes, if it is as it was made.
    unsafe fn open_alone(shape: &Shape, lock: i32) -> Option<Table> {
        // SAFETY: as the caller promises.
        unsafe {
            let table = Table::open_as_it_is(shape, lock)?;
            if table.hides_rows() {
                Error::forced_row_security(shape.name.as_str()).raise();
            }
            (settings::DIRECT_ACCESS.get() && table.is_as_made(shape)).then_some(table)
        }
    }

    /// Whether row security hides rows from the extension's owner: a statement would pass over
    /// them, and lose a job of which it sees only some rows.
    unsafe fn hides_rows(&self) -> bool {
        // SAFETY: the table is open.
        unsafe {
            let class = &*(*self.relation).rd_rel;
            class.relrowsecurity
                && class.relforcerowsecurity
                && pg_sys::check_enable_rls((*self.relation).rd_id, pg_sys::InvalidOid, true)
                    == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32
        }
    }

    /// Opens a table without its indexes, if it is there.
    pub(super) unsafe fn open_as_it_is(shape: &Shape, lock: i32) -> Option<Table> {
        // SAFETY: a look-up, and a lock that is kept.
        let relation = unsafe { pg_sys::try_table_open(shape.name.oid(), lock) };
        (!relation.is_null()).then(|| Table {
            relation,
            indexes: SmallVec::new(),
            may_delete: Cell::new(false),
        })
    }

    /// Whether it can be written without the executor, as far as its indexes allow that. What is
    /// asked here [`super::changed`] tells people of.
    pub(super) unsafe fn is_as_made(&self, shape: &Shape) -> bool {
        // SAFETY: the table is open.
        unsafe {
            let relation = &*self.relation;
            let class = &*relation.rd_rel;
            let constraints = (*relation.rd_att).constr;
            let columns = versions::columns(relation.rd_att);
            let is_right = |(column, wanted): (&pg_sys::FormData_pg_attribute, &Oid)| {
                !column.attisdropped
                    && (*wanted == pg_sys::InvalidOid || column.atttypid == *wanted)
            };
            columns.len() >= shape.columns.len()
                && columns.len() <= MOST_COLUMNS
                && columns.iter().zip(shape.columns).all(is_right)
                // Columns that others added are gone again.
                && columns[shape.columns.len()..].iter().all(|column| column.attisdropped)
                && columns.iter().filter(|column| column.attnotnull).count() == shape.not_null
                && !class.relhassubclass
                && !class.relispartition
                && relation.trigdesc.is_null()
                && relation.rd_rules.is_null()
                && !class.relrowsecurity
                && !class.relforcerowsecurity
                && class.relam == pg_sys::HEAP_TABLE_AM_OID
                && (constraints.is_null()
                    || ((*constraints).num_check == 0
                        && (*constraints).num_defval == 0
                        && !versions::has_generated(&*constraints)))
        }
    }

    /// A label of the enum that is the type of a column (from 1).
    pub fn label(&self, column: i32, label: &str) -> Datum {
        // SAFETY: the table has that column.
        let columns = unsafe { versions::columns((*self.relation).rd_att) };
        let of = columns[column as usize - 1].atttypid;
        label_of(of, label)
    }

    /// A row of these values, one a column that the extension made.
    pub fn row(&self, values: &[Value]) -> NewRow {
        // SAFETY: a value a column, in its type.
        unsafe {
            let desc = (*self.relation).rd_att;
            assert!(values.len() <= (*desc).natts as usize);
            let mut datums = [Datum::null(); MOST_COLUMNS];
            let mut nulls = [true; MOST_COLUMNS];
            for (n, value) in values.iter().enumerate() {
                (datums[n], nulls[n]) = (value.unwrap_or(Datum::null()), value.is_none());
            }
            NewRow(pg_sys::heap_form_tuple(desc, datums.as_mut_ptr(), nulls.as_mut_ptr()))
        }
    }

    /// A row of these columns; the others are null.
    pub fn row_of(&self, columns: &[(i32, Value)]) -> NewRow {
        let mut values = [None; MOST_COLUMNS];
        let mut count = 0;
        for (column, value) in columns {
            values[*column as usize - 1] = *value;
            count = count.max(*column as usize);
        }
        self.row(&values[..count])
    }

    /// Inserts rows, and their index entries. A duplicate in a unique index is an error. However
    /// many rows there are, few are in memory at once if they are made on the way.
    pub fn insert(&self, rows: impl IntoIterator<Item = NewRow>) {
        self.insert_in_order(rows.into_iter(), Duplicates::Refuse);
    }

    /// Inserts rows until one is a duplicate, also of an open transaction: `false`. To be called in
    /// a subtransaction, which is then rolled back right away. Never waits.
    ///
    /// There is no other way to take such a row back: until its transaction ends, others wait for
    /// one that was deleted as for any, and a subscriber is sent it.
    pub fn insert_if_new(&self, rows: impl IntoIterator<Item = NewRow>) -> bool {
        self.insert_in_order(rows.into_iter(), Duplicates::Tell)
    }

    /// Whether all were inserted.
    fn insert_in_order(
        &self,
        mut rows: impl Iterator<Item = NewRow>,
        duplicates: Duplicates,
    ) -> bool {
        let mut slots = SmallVec::new();
        // Mostly there is one row. The slots are all there once as many were inserted as are at
        // once.
        let mut scratch = None;
        let all = loop {
            let mut some = || self.insert_some(&mut rows, &mut slots, duplicates);
            let (all, may_be_more) = match &scratch {
                None => some(),
                Some(scratch) => Scratch::within(scratch, some),
            };
            if !(all && may_be_more) {
                break all;
            }
            scratch.get_or_insert_with(Scratch::new);
        };
        for slot in slots {
            // SAFETY: it is empty.
            unsafe { pg_sys::ExecDropSingleTupleTableSlot(slot) };
        }
        all
    }

    /// Inserts the next rows; whether all of them were inserted, and whether there may be more.
    fn insert_some(
        &self,
        rows: &mut impl Iterator<Item = NewRow>,
        slots: &mut SmallVec<[*mut pg_sys::TupleTableSlot; 1]>,
        duplicates: Duplicates,
    ) -> (bool, bool) {
        pgrx::check_for_interrupts!();
        let mut count = 0;
        // SAFETY: the rows are of this table.
        unsafe {
            while count < AT_ONCE
                && let Some(row) = rows.next()
            {
                if count == slots.len() {
                    slots.push(self.slot());
                }
                row.store(slots[count]);
                count += 1;
            }
            let slots = &mut slots[..count];
            let command = pg_sys::GetCurrentCommandId(true);
            let bulk = std::ptr::null_mut();
            match slots {
                [] => {}
                [one] => pg_sys::table_tuple_insert(self.relation, *one, command, 0, bulk),
                _ => pg_sys::table_multi_insert(
                    self.relation,
                    slots.as_mut_ptr(),
                    count as i32,
                    command,
                    0,
                    bulk,
                ),
            }
            let mut entries = self.indexes.iter().flat_map(|index| {
                let slots = slots.iter();
                slots.map(move |slot| (index, in_slot(*slot)))
            });
            let all = entries.all(|(index, row)| {
                // A lock timeout that is over is known as one only until the session waits for the
                // next lock.
                pgrx::check_for_interrupts!();
                index.insert(self.relation, &row, duplicates)
            });
            for slot in slots {
                pg_sys::ExecClearTuple(*slot);
            }
            (all, count == AT_ONCE)
        }
    }

    unsafe fn slot(&self) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: the table is open.
        unsafe {
            pg_sys::MakeSingleTupleTableSlot(
                (*self.relation).rd_att,
                &raw const pg_sys::TTSOpsHeapTuple,
            )
        }
    }

    /// Inserts a row unless a unique index has one like it, also of an open transaction;
    /// whether it was inserted. Never waits.
    pub fn insert_unless_taken(&self, row: NewRow) -> bool {
        // SAFETY: as above. As a statement with ON CONFLICT does it: the row is there for all
        // sessions to wait for, and undone if it turns out to be second.
        unsafe {
            let slot = self.slot();
            row.store(slot);
            let command = pg_sys::GetCurrentCommandId(true);
            let transaction = pg_sys::GetCurrentTransactionId();
            let token = pg_sys::SpeculativeInsertionLockAcquire(transaction);
            pg_sys::table_tuple_insert_speculative(
                self.relation,
                slot,
                command,
                0,
                std::ptr::null_mut(),
                token,
            );
            let inserted = in_slot(slot);
            let mut indexes = self.indexes.iter();
            let is_first =
                indexes.all(|index| index.insert(self.relation, &inserted, Duplicates::Tell));
            pg_sys::table_tuple_complete_speculative(self.relation, slot, token, is_first);
            pg_sys::SpeculativeInsertionLockRelease(transaction);
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            is_first
        }
    }

    /// Deletes the row that is there. With `wait` it waits for the session that has it locked.
    pub fn delete(&self, tid: Tid, wait: bool) -> Deleted {
        match self.delete_at(tid, wait) {
            Deleted::Locked => self.delete_own(tid),
            deleted => deleted,
        }
    }

    /// Deletes a row that was said to be locked, if this transaction has locked it: to a caller
    /// that does not wait that looks as if another session had.
    fn delete_own(&self, tid: Tid) -> Deleted {
        let mode = pg_sys::LockTupleMode::LockTupleExclusive;
        let policy = pg_sys::LockWaitPolicy::LockWaitSkip;
        match has_written() && self.lock_tuple(tid, mode, policy, 0) {
            true => self.delete_at(tid, true),
            false => Deleted::Locked,
        }
    }

    fn lock_tuple(
        &self,
        mut tid: Tid,
        mode: pg_sys::LockTupleMode::Type,
        policy: pg_sys::LockWaitPolicy::Type,
        flags: u32,
    ) -> bool {
        // SAFETY: the row is of this table; the outputs are plain; the snapshot is not used.
        unsafe {
            let slot = pg_sys::table_slot_create(self.relation, std::ptr::null_mut());
            let mut failure = pg_sys::TM_FailureData::default();
            let result = pg_sys::table_tuple_lock(
                self.relation,
                &mut tid,
                pg_sys::GetActiveSnapshot(),
                slot,
                pg_sys::GetCurrentCommandId(true),
                mode,
                policy,
                flags as u8,
                &mut failure,
            );
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            result == pg_sys::TM_Result::TM_Ok
        }
    }

    /// Deletes the row that is there, unless another session has changed it.
    pub fn delete_at(&self, mut tid: Tid, wait: bool) -> Deleted {
        use pg_sys::TM_Result as Result;
        // SAFETY: the row is of this table; the outputs are plain.
        let result = unsafe {
            if !self.may_delete.replace(true) {
                pg_sys::CheckCmdReplicaIdentity(self.relation, pg_sys::CmdType::CMD_DELETE);
            }
            let (none, command) = (std::ptr::null_mut(), pg_sys::GetCurrentCommandId(true));
            let mut failure = pg_sys::TM_FailureData::default();
            pg_sys::table_tuple_delete(
                self.relation,
                &mut tid,
                command,
                none,
                none,
                wait,
                &mut failure,
                false,
            )
        };
        match result {
            Result::TM_Ok => Deleted::Done,
            Result::TM_BeingModified | Result::TM_WouldBlock => Deleted::Locked,
            Result::TM_Updated => Deleted::Moved,
            _ => Deleted::Gone,
        }
    }

    /// Locks the one row with this key, if there is one that is committed or the transaction's own,
    /// as an update does that leaves keys alone; whether it is. With `wait` it waits for the
    /// session that has it locked; it may be gone then. For READ COMMITTED.
    pub fn lock(&self, index: &IndexShape, key: &[Key], wait: bool) -> bool {
        make_visible();
        // Kept while it waits, so that the row's place is given to no other one.
        let seen = Seen::now();
        let mut scan = self.scan(index, &seen, key.len()).backward();
        scan.find(key);
        let Some(tid) = scan.next().map(|row| row.tid()) else {
            return false;
        };
        drop(scan);
        let policy = match wait {
            true => pg_sys::LockWaitPolicy::LockWaitBlock,
            false => pg_sys::LockWaitPolicy::LockWaitSkip,
        };
        let mode = pg_sys::LockTupleMode::LockTupleNoKeyExclusive;
        self.lock_tuple(tid, mode, policy, pg_sys::TUPLE_LOCK_FLAG_FIND_LAST_VERSION)
    }

    /// Writes the row anew that a scan has found, and that is locked by this transaction. What is
    /// in its primary key stays as it is.
    ///
    /// Another row with that key cannot have been inserted, so it need not be looked for. But a
    /// rival may be looking for this one: from the first entry with the key to the last, in the
    /// order of the places of the rows. It meets a version that is there as long as a new one is
    /// behind the old one. Where it is before that, its entry is inserted as a new row's is, with a
    /// look for others: a look excludes all others. That takes time where a snapshot
    /// keeps many versions of one row; but then there is hardly any room before the last one.
    ///
    /// No test has a rival miss both. It would have to stop between two index pages, in Postgres'
    /// own look for duplicates. Nothing in there waits for anything that a session can hold: a lock
    /// or a transaction that it meets ends the look, and afterwards it begins anew. It has the
    /// first page locked meanwhile, so not even a signal is dealt with.
    pub fn update(&self, row: &Row, new: NewRow, key: &IndexShape) {
        // SAFETY: both rows are of this table.
        unsafe {
            pg_sys::CheckCmdReplicaIdentity(self.relation, pg_sys::CmdType::CMD_UPDATE);
            let slot = self.slot();
            new.store(slot);
            let mut indexes = versions::IndexUpdates::default();
            let snapshot = pg_sys::GetActiveSnapshot();
            let mut tid = row.tid();
            pg_sys::simple_table_tuple_update(
                self.relation,
                &mut tid,
                slot,
                snapshot,
                &mut indexes,
            );
            if versions::has_moved(indexes) {
                let updated = in_slot(slot);
                let key = key.name.oid();
                let of_key = match page(updated.tid()) > page(row.tid()) {
                    true => Duplicates::None,
                    false => Duplicates::RefuseOthers,
                };
                for index in &self.indexes {
                    let duplicates = match (*index.relation).rd_id == key {
                        true => of_key,
                        false => Duplicates::Refuse,
                    };
                    index.insert(self.relation, &updated, duplicates);
                }
            }
            pg_sys::ExecDropSingleTupleTableSlot(slot);
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // After an error Postgres closes them itself.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: open since open().
        unsafe {
            for index in &self.indexes {
                pg_sys::index_close(index.relation, pg_sys::NoLock as i32);
            }
            pg_sys::table_close(self.relation, pg_sys::NoLock as i32);
        }
    }
}

/// The page of a row.
fn page(of: Tid) -> pg_sys::BlockNumber {
    // SAFETY: it is where a row is.
    unsafe { item_pointer_get_block_number(&of) }
}

/// The row that this session has just written.
fn in_slot(slot: *mut pg_sys::TupleTableSlot) -> Row {
    Row { slot, is_in_progress: false, is_new: false }
}

/// The members of a list of the server's, in place: a call into Postgres takes longer than what it
/// would do.
pub(super) unsafe fn members<'a>(list: *const pg_sys::List) -> &'a [pg_sys::ListCell] {
    // SAFETY: a list has as many cells as it says.
    unsafe {
        list.as_ref()
            .map_or(&[], |list| std::slice::from_raw_parts(list.elements, list.length as usize))
    }
}

/// The outcome of deleting a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// Deleted, once the transaction commits.
    Done,
    Locked,
    /// Another transaction has updated it.
    Moved,
    Gone,
}

impl Deleted {
    /// What a transaction of a higher level than READ COMMITTED does that met what others have
    /// changed since it began: it ends with an error.
    pub fn fail_to_serialize(&self) {
        let what = match self {
            Deleted::Done | Deleted::Locked => return,
            Deleted::Moved => "update",
            Deleted::Gone => "delete",
        };
        if !is_read_committed() {
            ereport!(
                ERROR,
                PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
                format!("could not serialize access due to concurrent {what}")
            );
        }
    }
}
