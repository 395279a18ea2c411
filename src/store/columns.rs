//! The columns of a table, written down once: what needs their numbers, names or types takes them
//! from there.

/// A module of a table's columns in their order: the number of each (from 1) under its name, the
/// types of all, which are those of `store::types`, and the names. With values it is followed by a
/// function that makes a row, as the parameters of a statement or without one.
macro_rules! columns {
    (
        $(#[$doc:meta])*
        $table:ident { $($column:ident: $type:ident $(not $null:ident)? = $value:expr,)* }
        $(#[$row_doc:meta])*
        $visible:vis fn $row:ident($($argument:ident: $of:ty),*);
    ) => {
        columns! {
            $(#[$doc])*
            $table { $($column: $type $(not $null)?,)* }
        }

        $(#[$row_doc])*
        $visible fn $row($($argument: $of),*) -> [$crate::store::spi::Arg; $table::COUNT] {
            [$($value,)*]
        }
    };
    (
        $(#[$doc:meta])*
        $table:ident { $($column:ident: $type:ident $(not $null:ident)?,)* }
    ) => {
        $(#[$doc])*
        #[allow(dead_code, missing_docs)]
        pub mod $table {
            use pgrx::pg_sys::Oid;

            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Number { $($column,)* }
            $(pub const $column: i32 = Number::$column as i32 + 1;)*

            pub const TYPES: &[Oid] = &[$($crate::store::types::$type,)*];
            pub const COUNT: usize = TYPES.len();
            pub const NOT_NULL: usize = {
                let columns: &[&str] = &[$($(concat!(stringify!($column), stringify!($null)),)?)*];
                columns.len()
            };
            pub const NAMES: [&str; COUNT] = [$(stringify!($column),)*];

            /// The columns as a statement lists them.
            pub fn list() -> String {
                $crate::store::columns::list(&NAMES)
            }

            /// As many parameters, from the first on.
            pub fn parameters() -> String {
                $crate::store::columns::parameters(COUNT)
            }
        }
    };
}
pub(super) use columns;

/// A struct of what is set in a row of a table, a field a column, after the key; and of what else
/// is read of the row. A field of `None` is null.
macro_rules! record {
    (
        $(#[$doc:meta])*
        $name:ident: $table:literal by $key:ident {
            $($(#[$set_doc:meta])* $set:ident: $set_type:ty,)*
        } $({ $($(#[$more_doc:meta])* $more:ident: $more_type:ty,)* })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq)]
        pub struct $name {
            $($(#[$set_doc])* pub $set: Option<$set_type>,)*
            $($($(#[$more_doc])* pub $more: Option<$more_type>,)*)?
        }

        impl $name {
            const SET: &[&str] = &[stringify!($key), $(stringify!($set)),*];
            const READ: &[&str] = &[$(stringify!($set),)* $($(stringify!($more),)*)?];
            const TYPES: &[Oid] = &[TEXT, $(<$set_type as Value>::TYPE),*];

            fn row(&self, key: &str) -> Vec<Arg> {
                vec![text(key), $(self.$set.as_ref().and_then(Value::arg)),*]
            }

            fn read(rows: &Tuples) -> $name {
                $name {
                    $($set: rows.get(0, stringify!($set)),)*
                    $($($more: rows.get(0, stringify!($more)),)*)?
                }
            }

            fn select() -> String {
                let (columns, table, key) = (list(Self::READ), $table, stringify!($key));
                format!("SELECT {columns} FROM {table} WHERE {key} = $1")
            }
        }
    };
}
pub(super) use record;

pub fn list(columns: &[&str]) -> String {
    columns.join(", ").to_lowercase()
}

/// As many parameters, from the first on.
pub fn parameters(count: usize) -> String {
    let parameters: Vec<String> = (1..=count).map(|n| format!("${n}")).collect();
    parameters.join(", ")
}

/// That columns become the parameters, as an UPDATE says it.
pub fn set(columns: &[&str]) -> String {
    let values = parameters(columns.len());
    format!("SET ({}) = ROW ({values})", list(columns))
}

/// Deletes up to `$2` of the rows `t` of a table that this is true of, but for those that others
/// have locked.
pub fn delete_some(table: &str, which: &str) -> String {
    format!(
        "DELETE FROM jobs.{table} WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM jobs.{table} t WHERE {which} LIMIT $2 FOR UPDATE OF t SKIP LOCKED))"
    )
}
