//! One-dimensional arrays, built from and taken apart into datums.

use pgrx::FromDatum;
use pgrx::pg_sys::{self, Datum, Oid};

use super::text;

/// An array datum of the given element type; `None` is a null element.
pub fn build(element: Oid, values: &[Option<Datum>]) -> Datum {
    let mut datums: Vec<Datum> = values.iter().map(|v| v.unwrap_or(Datum::null())).collect();
    let mut nulls: Vec<bool> = values.iter().map(Option::is_none).collect();
    let (len, byval, align) = storage(element);
    let mut dim = values.len() as i32;
    let mut lower = 1;
    // SAFETY: both vectors live through the call, which copies what it needs.
    unsafe {
        Datum::from(pg_sys::construct_md_array(
            datums.as_mut_ptr(),
            nulls.as_mut_ptr(),
            if values.is_empty() { 0 } else { 1 },
            &mut dim,
            &mut lower,
            element,
            len,
            byval,
            align,
        ))
    }
}

/// The elements of an array argument, `None` for a null one. The array must have
/// the given element type; it is flattened if it has more than one dimension.
pub fn elements(array: Array, element: Oid) -> Vec<Option<Datum>> {
    let (len, byval, align) = storage(element);
    let mut datums: *mut Datum = std::ptr::null_mut();
    let mut nulls: *mut bool = std::ptr::null_mut();
    let mut n = 0;
    // SAFETY: the array was detoasted by `Array::from_arg`; the outputs are palloc'd.
    unsafe {
        pg_sys::deconstruct_array(
            array.0,
            element,
            len,
            byval,
            align,
            &mut datums,
            &mut nulls,
            &mut n,
        );
        (0..n as usize)
            .map(|i| {
                pgrx::check_for_interrupts!();
                (!*nulls.add(i)).then(|| *datums.add(i))
            })
            .collect()
    }
}

/// The strings of an array of texts, `None` for a null one.
pub fn texts(array: Array) -> Vec<Option<String>> {
    // SAFETY: the parameter is declared as text[].
    let text = |datum| unsafe { String::from_datum(datum, false) };
    let elements = elements(array, pg_sys::TEXTOID);
    elements.into_iter().map(|element| element.and_then(text)).collect()
}

/// The labels of an array of an enum, `None` for a null one.
pub fn labels(array: Array) -> Vec<Option<String>> {
    // SAFETY: the array is one of an enum, whose output function gives the label.
    unsafe {
        let element = (*array.0).elemtype;
        let label = |datum| text::printed(pg_sys::F_ENUM_OUT, datum);
        elements(array, element).into_iter().map(|datum| datum.map(label)).collect()
    }
}

fn storage(element: Oid) -> (i32, bool, i8) {
    let (mut len, mut byval, mut align) = (0, false, 0);
    // SAFETY: plain out parameters.
    unsafe { pg_sys::get_typlenbyvalalign(element, &mut len, &mut byval, &mut align) };
    (len.into(), byval, align)
}

/// An array argument, detoasted but not taken apart.
#[derive(Clone, Copy)]
pub struct Array(*mut pg_sys::ArrayType);

impl Array {
    /// To hand on to a statement of the same call.
    pub fn datum(self) -> Datum {
        Datum::from(self.0)
    }
}

super::jsonb::varlena_argument!(Array, "anyarray", |p: *mut pg_sys::varlena| Array(p.cast()));
