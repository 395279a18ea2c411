//! The columns of a table, written down once: what needs their numbers, names or types takes them
//! from there.

/// A module of a table's columns in their order: the number of each (from 1) under its name, and the
/// types of all. `store::types` has the types.
macro_rules! columns {
    (
        $(#[$doc:meta])*
        $table:ident { $($column:ident: $type:ident $(not $null:ident)?,)* }
    ) => {
        $(#[$doc])*
        #[allow(dead_code, missing_docs)]
        pub mod $table {
            use pgrx::pg_sys::Oid;

            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Place { $($column,)* }
            $(pub const $column: i32 = Place::$column as i32 + 1;)*

            pub const TYPES: &[Oid] = &[$($crate::store::types::$type,)*];
            pub const COUNT: usize = TYPES.len();
            pub const NOT_NULL: usize = {
                let columns: &[&str] = &[$($(concat!(stringify!($column), stringify!($null)),)?)*];
                columns.len()
            };
            /// As statements name them.
            pub const NAMES: [&str; COUNT] = [$(stringify!($column),)*];
        }
    };
}
pub(super) use columns;
