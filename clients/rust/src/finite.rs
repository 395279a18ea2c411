//! Whether a value has only numbers that JSON has.

use serde::ser::{self, Error, Serialize};

type Result = std::result::Result<(), serde_json::Error>;

/// A serializer that writes nothing, and refuses NaN and infinity.
#[derive(Default)]
pub(crate) struct Finite;

macro_rules! accept {
    ($ok:ty: $($method:ident($($argument:ty),*))*) => {$(
        fn $method(self, $(_: $argument),*) -> std::result::Result<$ok, serde_json::Error> {
            Ok(Default::default())
        }
    )*};
}

impl ser::Serializer for Finite {
    type Ok = ();
    type Error = serde_json::Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    accept! { ():
        serialize_bool(bool) serialize_char(char) serialize_str(&str) serialize_bytes(&[u8])
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
        serialize_i128(i128) serialize_u128(u128)
        serialize_none() serialize_unit() serialize_unit_struct(&'static str)
        serialize_unit_variant(&'static str, u32, &'static str)
    }
    accept! { Self:
        serialize_seq(Option<usize>) serialize_tuple(usize) serialize_map(Option<usize>)
        serialize_tuple_struct(&'static str, usize) serialize_struct(&'static str, usize)
        serialize_tuple_variant(&'static str, u32, &'static str, usize)
        serialize_struct_variant(&'static str, u32, &'static str, usize)
    }

    fn serialize_f32(self, value: f32) -> Result {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result {
        let error = || Error::custom(format!("{value} is not a JSON number"));
        value.is_finite().then_some(()).ok_or_else(error)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &str, value: &T) -> Result {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &str,
        _: u32,
        _: &str,
        value: &T,
    ) -> Result {
        value.serialize(self)
    }
}

macro_rules! members {
    ($($kind:ident $method:ident($($name:ty)?))*) => {$(
        impl ser::$kind for Finite {
            type Ok = ();
            type Error = serde_json::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $name,)? value: &T) -> Result {
                value.serialize(Finite)
            }

            fn end(self) -> Result {
                Ok(())
            }
        }
    )*};
}

members! {
    SerializeSeq serialize_element()
    SerializeTuple serialize_element()
    SerializeTupleStruct serialize_field()
    SerializeTupleVariant serialize_field()
    SerializeStruct serialize_field(&'static str)
    SerializeStructVariant serialize_field(&'static str)
}

impl ser::SerializeMap for Finite {
    type Ok = ();
    type Error = serde_json::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        value.serialize(Finite)
    }

    fn end(self) -> Result {
        Ok(())
    }
}
