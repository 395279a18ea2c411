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
                NAMES.join(", ").to_lowercase()
            }

            /// As many parameters, from the first on.
            pub fn parameters() -> String {
                let parameters: Vec<String> = (1..=COUNT).map(|n| format!("${n}")).collect();
                parameters.join(", ")
            }
        }
    };
}
pub(super) use columns;
