//! The functions of elements, queues and wire formats in one table: signature, description, and what a call becomes.

use weft_core::Type;
use weft_core::limits::ARGUMENTS_MAX;

use super::queue::build as q;
use crate::hir::{Function, QueueBinary, QueueExpr, QueueUnary};
use crate::source::Span;

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// Its name and signature for people. The name is in lower case; case does not matter in a program.
    pub text: &'static str,
    /// Its description in one sentence.
    pub doc: &'static str,
    /// The types of the arguments and of the result.
    pub(super) shape: Shape,
    /// The result may be an error even if no argument is.
    pub fallible: bool,
    /// What a call becomes in an element; None if elements do not have the function.
    pub(super) element: Option<ElementFunction>,
    /// The same for a queue.
    pub(super) queue: Option<QueueFunction>,
    /// The same for a header of a protocol.
    pub(super) wire: Option<WireFunction>,
}

/// The arguments and the result of a function. Two numbers are the least and the greatest number of arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// Arguments of these types and a result of that type.
    Fixed(&'static [Type], Type),
    /// The same, but the last argument may be omitted.
    Trailing(&'static [Type], Type),
    /// One argument that is converted to the result.
    Convert(Type),
    /// Arguments of one type of this class, which is the result's type.
    Same(Class, usize, usize),
    /// Arguments of any types of this class.
    Each(Class, usize, usize, Type),
    /// An argument of this class, others of these types, and a result of that type, or of the first argument's.
    First(Class, &'static [Type], Option<Type>),
    /// Names or other words, which are not values.
    Words(usize, usize),
}

/// A set of types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Any,
    /// Values that can be negated.
    Signed,
    /// Values that can be compared with `<`.
    Ordered,
    /// Whole numbers, with or without a unit.
    Whole,
    /// TEXT and BYTES.
    Text,
}

/// What a call becomes in an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ElementFunction {
    Call(Function),
    Cast,
    /// The operator `||`.
    Concat,
}

/// What a call becomes in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueFunction {
    Unary(QueueUnary),
    /// An operation on all arguments, in pairs.
    Binary(QueueBinary),
    Cast,
    /// An expression of the arguments.
    Build(fn(&[QueueExpr], Span) -> QueueExpr),
    /// An expression that depends on the queue or on words.
    Read(QueueRead),
}

/// A function that depends on the queue, or on words of its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueRead {
    Flow,
    Partitions,
    Present,
    Rand,
}

/// What a call becomes in a header of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WireFunction {
    BytesAfter,
    Checksum,
    Count,
    Flow,
    Peek,
    Present,
}

impl Signature {
    /// The name in lower case.
    pub fn name(&self) -> &'static str {
        let end = self.text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &self.text[..end.unwrap_or(self.text.len())]
    }

    const fn element(self, function: Function) -> Self {
        Self { element: Some(ElementFunction::Call(function)), ..self }
    }

    /// An element has its own tree for this function.
    const fn element_as(self, function: ElementFunction) -> Self {
        Self { element: Some(function), ..self }
    }

    const fn queue(self, function: QueueFunction) -> Self {
        Self { queue: Some(function), ..self }
    }

    const fn wire(self, function: WireFunction) -> Self {
        Self { wire: Some(function), ..self }
    }

    const fn fallible(self) -> Self {
        Self { fallible: true, ..self }
    }
}

const fn row(text: &'static str, doc: &'static str, shape: Shape) -> Signature {
    Signature { text, doc, shape, fallible: false, element: None, queue: None, wire: None }
}

const MANY: usize = ARGUMENTS_MAX;
const TEXT: Type = Type::Text(None);
const BYTES: Type = Type::Bytes(None);
const F64: Type = Type::F64;
const I64: Type = Type::Int(64);
const U64: Type = Type::Uint(64);

use Class as C;
use ElementFunction as E;
use Function as F;
use QueueBinary as B;
use QueueFunction as Q;
use QueueRead as R;
use QueueUnary as U;
use Shape as S;
use WireFunction as W;

macro_rules! functions {
    ($($text:literal $doc:literal $shape:expr, $($place:ident($($function:expr)?))*;)*) => {
        /// Every function but the aggregates, and those of elements whose arguments are tables or layers; sorted by
        /// name.
        pub const FUNCTIONS: &[Signature] = &[$(row($text, $doc, $shape)$(.$place($($function)?))*),*];
    };
}

functions! {
    "abs(T) T" "the magnitude of a signed integer, F64 or INTERVAL"
        S::Same(C::Signed, 1, 1), element(F::Abs) queue(Q::Unary(U::Abs)) fallible();
    "bit_and(a, b)" "the bits that both have" S::Each(C::Whole, 2, 2, I64), queue(Q::Binary(B::BitAnd));
    "bit_or(a, b)" "the bits that one of them has" S::Each(C::Whole, 2, 2, I64), queue(Q::Binary(B::BitOr));
    "bytes_after(field)" "bytes from the end of a field to the end of the layer"
        S::Words(1, 1), wire(W::BytesAfter);
    "ceil(F64) F64" "the smallest integer not less than the value"
        S::Fixed(&[F64], F64), element(F::Ceil) queue(Q::Unary(U::Ceil));
    "checksum(header)" "a checksum of the header, or also of the payload and the pseudo header"
        S::Words(0, MANY), wire(W::Checksum);
    "checksum_or_zero(pseudo, header, payload)" "a checksum that may be absent"
        S::Words(0, MANY), wire(W::Checksum);
    "coalesce(T?, ...) T" "the first value that is not NULL" S::Same(C::Any, 2, MANY), element(F::Coalesce);
    "coalesce_zero(a, b)" "b if a is 0" S::Same(C::Whole, 2, 2), queue(Q::Build(q::coalesce_zero));
    "concat(TEXT, ...) TEXT" "concatenates texts, like `||`"
        S::Same(C::Any, 1, MANY), element_as(E::Concat) fallible();
    "contains(TEXT, TEXT) BOOL" "whether the first contains the second"
        S::Fixed(&[TEXT, TEXT], Type::Bool), element(F::Contains);
    "count(repeat)" "the rounds of a REPEAT" S::Words(1, 1), wire(W::Count);
    "counted(m BYTES, bin U64) BYTES" "increments the 16-bit counter `bin`, in `SET m = counted(m, bin)`"
        S::Fixed(&[BYTES, U64], BYTES), element(F::Counted);
    "crc32c(header, payload)" "a CRC, least significant byte first"
        S::Words(0, MANY), wire(W::Checksum);
    "ends_with(TEXT, TEXT) BOOL" "whether the first ends with the second"
        S::Fixed(&[TEXT, TEXT], Type::Bool), element(F::EndsWith);
    "float(x) F64" "the value as an F64" S::Convert(F64), element_as(E::Cast) queue(Q::Cast) fallible();
    "floor(F64) F64" "the largest integer not greater than the value"
        S::Fixed(&[F64], F64), element(F::Floor) queue(Q::Unary(U::Floor));
    "flow()" "the hash of the packet's flow, p.flow" S::Fixed(&[], I64), queue(Q::Read(R::Flow));
    "greatest(T, ...) T" "the largest value; NULL if any value is NULL"
        S::Same(C::Ordered, 1, MANY), element(F::Greatest) queue(Q::Binary(B::Greatest));
    "hash(x, ...) U64" "the system's hash function, the same on every node"
        S::Each(C::Any, 1, MANY, U64), element(F::Hash);
    "hash(n [, m])" "32 bits" S::Each(C::Whole, 1, 2, I64), queue(Q::Build(q::hash));
    "hash(inner.flow)" "a 32-bit hash of the carried flow" S::Words(1, 1), wire(W::Flow);
    "hash_slot(x, n I64) I64" "the hash of x modulo n, 0 to n - 1"
        S::First(C::Any, &[I64], Some(I64)), element(F::HashSlot) fallible();
    "in_prefix(IPADDR, CIDR) BOOL" "whether the address is in the network"
        S::Fixed(&[Type::IpAddr, Type::Cidr], Type::Bool), element(F::InPrefix);
    "int(x) I64" "the value as an I64, truncated toward zero" S::Convert(I64), element_as(E::Cast) fallible();
    "interval(seconds F64) INTERVAL" "the given number of seconds"
        S::Fixed(&[F64], Type::Interval), element(F::Interval) fallible();
    "interval(ns) INTERVAL" "the given number of nanoseconds" S::Convert(Type::Interval), queue(Q::Cast);
    "is_group(MAC) BOOL" "whether the address is a group address: multicast or broadcast, its I/G bit (IEEE 802)"
        S::Fixed(&[Type::Mac], Type::Bool), element(F::IsGroup);
    "least(T, ...) T" "the smallest value; NULL if any value is NULL"
        S::Same(C::Ordered, 1, MANY), element(F::Least) queue(Q::Binary(B::Least));
    "length(TEXT or BYTES) I64" "its length in bytes" S::Each(C::Text, 1, 1, I64), element(F::Length);
    "log2(n)" "the whole part; 0 below 1" S::Each(C::Whole, 1, 1, I64), queue(Q::Unary(U::Log2));
    "lower(TEXT) TEXT" "with ASCII letters in lower case" S::Fixed(&[TEXT], TEXT), element(F::Lower) fallible();
    "micros(INTERVAL) F64" "the interval in microseconds" S::Fixed(&[Type::Interval], F64), element(F::Micros);
    "millis(INTERVAL) F64" "the interval in milliseconds" S::Fixed(&[Type::Interval], F64), element(F::Millis);
    "now() TIMESTAMP" "when the tuple arrived" S::Fixed(&[], Type::Timestamp), element(F::Now);
    "now() TIMESTAMP" "the time of this event" S::Fixed(&[], Type::Timestamp), queue(Q::Build(q::now));
    "nullif(T, T) T?" "NULL if both are equal, otherwise the first" S::Same(C::Any, 2, 2), element(F::NullIf);
    "number(a)" "a whole number without its unit, of F64 toward zero" S::Convert(I64), queue(Q::Cast);
    "partitions(p.src)" "partitions in use for the same source, this packet's included"
        S::Words(1, 1), queue(Q::Read(R::Partitions));
    "peek bit(n)" "the first bits after the header" S::Words(1, 1), wire(W::Peek);
    "prefix_bits(CIDR) U8" "the prefix length of the network: 24 for `10.1.2.0/24`"
        S::Fixed(&[Type::Cidr], Type::Uint(8)), element(F::PrefixBits);
    "present(vlan) BOOL" "the packet has this header" S::Words(1, 1), queue(Q::Read(R::Present));
    "present(field) BOOL" "the field is present" S::Words(1, 1), wire(W::Present);
    "rand() F64" "a uniform random number in [0, 1), the same on each replay"
        S::Fixed(&[], F64), element(F::Rand(0)) queue(Q::Read(R::Rand));
    "round(F64) F64" "the nearest integer, ties to even"
        S::Fixed(&[F64], F64), element(F::Round) queue(Q::Unary(U::Round));
    "rsqrt(n) F64" "1 / sqrt(n)" S::Fixed(&[F64], F64), queue(Q::Build(q::rsqrt));
    "rsqrt_step(r, n)" "a step of Newton's towards 65536 / sqrt(n), as Linux and ns-3 take it"
        S::Fixed(&[I64, I64], I64), queue(Q::Build(q::rsqrt_step));
    "same_family(IPADDR, CIDR) BOOL" "whether both are IPv4, or both IPv6"
        S::Fixed(&[Type::IpAddr, Type::Cidr], Type::Bool), element(F::SameFamily);
    "scale(INTERVAL, r) INTERVAL" "the interval times r / 65536, as Linux and ns-3 take it"
        S::Fixed(&[Type::Interval, I64], Type::Interval), queue(Q::Build(q::scale));
    "seconds(INTERVAL) F64" "the interval in seconds"
        S::Fixed(&[Type::Interval], F64), element(F::Seconds) queue(Q::Build(q::seconds));
    "send_rest(SIZE, bits a second, rest)" "the remaining fraction of a nanosecond, for the next send_time"
        S::Fixed(&[Type::Size, I64, I64], I64), queue(Q::Build(q::send_rest));
    "send_time(SIZE, bits a second [, rest]) INTERVAL" "how long a link needs for it; 0 at rate 0"
        S::Trailing(&[Type::Size, I64, I64], Type::Interval), queue(Q::Build(q::send_time));
    "shift_left(a, n)" "a times 2 to the power of n" S::First(C::Whole, &[I64], None), queue(Q::Binary(B::ShiftLeft));
    "shift_right(a, n)" "the bits of a, n places lower; zeros come in"
        S::First(C::Whole, &[I64], None), queue(Q::Binary(B::ShiftRight));
    "size(bytes) SIZE" "the given number of bytes" S::Convert(Type::Size), queue(Q::Cast);
    "sqrt(F64) F64" "the square root; NaN of a negative number"
        S::Fixed(&[F64], F64), element(F::Sqrt) queue(Q::Unary(U::Sqrt));
    "starts_with(TEXT, TEXT) BOOL" "whether the first begins with the second"
        S::Fixed(&[TEXT, TEXT], Type::Bool), element(F::StartsWith);
    "substr(TEXT, from I64, n I64) TEXT" "the whole characters in n bytes from byte `from`, counted from 1"
        S::Fixed(&[TEXT, I64, I64], TEXT), element(F::Substr);
    "text(x) TEXT" "the value as text" S::Convert(TEXT), element_as(E::Cast) fallible();
    "timestamp(ns) TIMESTAMP" "the time this number of nanoseconds after the queue's epoch"
        S::Convert(Type::Timestamp), queue(Q::Cast);
    "uint(x) U64" "the value as a U64, truncated toward zero" S::Convert(U64), element_as(E::Cast) fallible();
    "upper(TEXT) TEXT" "with ASCII letters in upper case" S::Fixed(&[TEXT], TEXT), element(F::Upper) fallible();
}

/// Names of aggregates over a `SCAN`.
pub const AGGREGATES: &[&str] = &["argmax", "argmin", "avg", "count", "max", "min", "sum"];

/// The function of elements with this name.
pub fn find(name: &str) -> Option<&'static Signature> {
    of_elements().find(|signature| signature.name().eq_ignore_ascii_case(name))
}

/// The functions of elements.
pub fn of_elements() -> impl Iterator<Item = &'static Signature> {
    FUNCTIONS.iter().filter(|signature| signature.element.is_some())
}

/// The functions of queues.
pub fn of_queues() -> impl Iterator<Item = &'static Signature> {
    FUNCTIONS.iter().filter(|signature| signature.queue.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_names_are_sorted() {
        // The reference prints this table; a name with two meanings in one place would be ambiguous.
        assert!(FUNCTIONS.is_sorted_by_key(Signature::name));
        for is_in in [
            |signature: &&Signature| signature.element.is_some(),
            |signature: &&Signature| signature.queue.is_some(),
            |signature: &&Signature| signature.wire.is_some(),
        ] {
            let names: Vec<&str> = FUNCTIONS.iter().filter(is_in).map(Signature::name).collect();
            assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        }
        assert!(find("Least").is_some_and(|signature| signature.text == "least(T, ...) T"));
        assert!(find("lest").is_none() && find("log2").is_none());
        assert!(find("upper").unwrap().fallible && !find("sqrt").unwrap().fallible);
    }
}
