//! The functions of the language in one table: name, signature, description.

use weft_core::Type;

use crate::hir::Function;

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The name in lower case; case does not matter in a program.
    pub name: &'static str,
    /// Its signature for people.
    pub text: &'static str,
    /// Its description in one sentence.
    pub doc: &'static str,
    /// The types of the arguments and of the result.
    pub shape: Shape,
    /// The result may be an error even if no argument is.
    pub fallible: bool,
    /// The function; None for `concat`, which is the operator `||`, and for conversions, which are casts.
    pub function: Option<Function>,
}

/// The arguments and the result of a function.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Arguments of these types and a result of that type.
    Fixed(&'static [Type], Type),
    /// One argument that CAST can convert to the result.
    Convert(Type),
    /// One signed integer, F64 or INTERVAL; the result has its type.
    Abs,
    /// At least this many arguments of one ordered type, which is the result's type.
    SameOrdered(usize),
    /// At least this many arguments of one type, which is the result's type; the result is NULL if all are NULL.
    Coalesce(usize),
    /// Two arguments of one type; the result has it and may be NULL.
    NullIf,
    /// TEXT or BYTES.
    Length,
    /// Any number of arguments of any types, at least one.
    Hash,
    /// A value of any type and a number of slots.
    HashSlot,
    /// Texts, at least one.
    Concat,
    /// A column of BYTES, to which the result is assigned, and a number.
    Counted,
}

const TEXT: Type = Type::Text(None);
const I64: Type = Type::Int(64);

macro_rules! is_fallible {
    () => {
        false
    };
    (fallible) => {
        true
    };
}

macro_rules! functions {
    ($($name:literal $text:literal $doc:literal $shape:expr, $function:expr $(, $fallible:ident)?;)*) => {
        /// Every function but the aggregates and `count(table)`, sorted by name.
        pub const FUNCTIONS: &[Signature] = &[$(Signature {
            name: $name,
            text: concat!($name, $text),
            doc: $doc,
            shape: $shape,
            fallible: is_fallible!($($fallible)?),
            function: $function,
        }),*];
    };
}

use Function as F;
use Shape as S;

functions! {
    "abs" "(T) T" "the magnitude of a signed integer, F64 or INTERVAL" S::Abs, Some(F::Abs), fallible;
    "ceil" "(F64) F64" "the smallest integer not less than the value" S::Fixed(&[Type::F64], Type::F64), Some(F::Ceil);
    "coalesce" "(T?, ...) T" "the first value that is not NULL" S::Coalesce(2), Some(F::Coalesce);
    "concat" "(TEXT, ...) TEXT" "concatenates texts, like `||`" S::Concat, None, fallible;
    "contains" "(TEXT, TEXT) BOOL" "whether the first contains the second"
        S::Fixed(&[TEXT, TEXT], Type::Bool), Some(F::Contains);
    "counted" "(m BYTES, bin U64) BYTES" "increments the 16-bit counter `bin`, in `SET m = counted(m, bin)`"
        S::Counted, Some(F::Counted);
    "ends_with" "(TEXT, TEXT) BOOL" "whether the first ends with the second"
        S::Fixed(&[TEXT, TEXT], Type::Bool), Some(F::EndsWith);
    "float" "(x) F64" "the value as an F64" S::Convert(Type::F64), None, fallible;
    "floor" "(F64) F64" "the largest integer not greater than the value"
        S::Fixed(&[Type::F64], Type::F64), Some(F::Floor);
    "greatest" "(T, ...) T" "the largest value; NULL if any value is NULL" S::SameOrdered(1), Some(F::Greatest);
    "hash" "(x, ...) U64" "the system's hash function, the same on every node" S::Hash, Some(F::Hash);
    "hash_slot" "(x, n I64) I64" "the hash of x modulo n, 0 to n - 1" S::HashSlot, Some(F::HashSlot), fallible;
    "in_prefix" "(IPADDR, CIDR) BOOL" "whether the address is in the network"
        S::Fixed(&[Type::IpAddr, Type::Cidr], Type::Bool), Some(F::InPrefix);
    "int" "(x) I64" "the value as an I64, truncated toward zero" S::Convert(I64), None, fallible;
    "interval" "(seconds F64) INTERVAL" "the given number of seconds"
        S::Fixed(&[Type::F64], Type::Interval), Some(F::Interval), fallible;
    "is_group" "(MAC) BOOL" "whether the address is a group address: multicast or broadcast, its I/G bit (IEEE 802)"
        S::Fixed(&[Type::Mac], Type::Bool), Some(F::IsGroup);
    "least" "(T, ...) T" "the smallest value; NULL if any value is NULL" S::SameOrdered(1), Some(F::Least);
    "length" "(TEXT or BYTES) I64" "its length in bytes" S::Length, Some(F::Length);
    "lower" "(TEXT) TEXT" "with ASCII letters in lower case" S::Fixed(&[TEXT], TEXT), Some(F::Lower), fallible;
    "micros" "(INTERVAL) F64" "the interval in microseconds" S::Fixed(&[Type::Interval], Type::F64), Some(F::Micros);
    "millis" "(INTERVAL) F64" "the interval in milliseconds" S::Fixed(&[Type::Interval], Type::F64), Some(F::Millis);
    "now" "() TIMESTAMP" "when the tuple arrived" S::Fixed(&[], Type::Timestamp), Some(F::Now);
    "nullif" "(T, T) T?" "NULL if both are equal, otherwise the first" S::NullIf, Some(F::NullIf);
    "prefix_bits" "(CIDR) U8" "the prefix length of the network: 24 for `10.1.2.0/24`"
        S::Fixed(&[Type::Cidr], Type::Uint(8)), Some(F::PrefixBits);
    "rand" "() F64" "a uniform random number in [0, 1), the same on each replay"
        S::Fixed(&[], Type::F64), Some(F::Rand(0));
    "round" "(F64) F64" "the nearest integer, ties to even" S::Fixed(&[Type::F64], Type::F64), Some(F::Round);
    "same_family" "(IPADDR, CIDR) BOOL" "whether both are IPv4, or both IPv6"
        S::Fixed(&[Type::IpAddr, Type::Cidr], Type::Bool), Some(F::SameFamily);
    "seconds" "(INTERVAL) F64" "the interval in seconds" S::Fixed(&[Type::Interval], Type::F64), Some(F::Seconds);
    "sqrt" "(F64) F64" "the square root; NaN of a negative number" S::Fixed(&[Type::F64], Type::F64), Some(F::Sqrt);
    "starts_with" "(TEXT, TEXT) BOOL" "whether the first begins with the second"
        S::Fixed(&[TEXT, TEXT], Type::Bool), Some(F::StartsWith);
    "substr" "(TEXT, from I64, n I64) TEXT" "the whole characters in n bytes from byte `from`, counted from 1"
        S::Fixed(&[TEXT, I64, I64], TEXT), Some(F::Substr);
    "text" "(x) TEXT" "the value as text" S::Convert(TEXT), None, fallible;
    "uint" "(x) U64" "the value as a U64, truncated toward zero" S::Convert(Type::Uint(64)), None, fallible;
    "upper" "(TEXT) TEXT" "with ASCII letters in upper case" S::Fixed(&[TEXT], TEXT), Some(F::Upper), fallible;
}

/// Names of aggregates over a `SCAN`.
pub const AGGREGATES: &[&str] = &["argmax", "argmin", "avg", "count", "max", "min", "sum"];

/// The function of a name.
pub fn find(name: &str) -> Option<&'static Signature> {
    FUNCTIONS.iter().find(|signature| signature.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_names_are_sorted() {
        // The reference prints this table; a duplicate name would be ambiguous.
        assert!(FUNCTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(find("Least").is_some_and(|signature| signature.text == "least(T, ...) T"));
        assert!(find("lest").is_none());
        assert!(find("upper").unwrap().fallible && !find("sqrt").unwrap().fallible);
    }
}
