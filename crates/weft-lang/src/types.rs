//! The types of the language: types as written, widening rules, and parsing of literals.

use std::net::IpAddr;

use weft_core::schema::{FieldKind, Schema};
use weft_core::{Interval, Status, Type, Value};

use crate::ast::TypeKind;

/// Finds the type that a type expression names; None if there is no such type. An enum of a schema is an `I32`.
pub fn named(kind: &TypeKind, schema: &Schema) -> Option<Type> {
    Some(match kind {
        TypeKind::Bool => Type::Bool,
        TypeKind::I8 => Type::Int(8),
        TypeKind::I16 => Type::Int(16),
        TypeKind::I32 => Type::Int(32),
        TypeKind::I64 => Type::Int(64),
        TypeKind::U1 => Type::Uint(1),
        TypeKind::U8 => Type::Uint(8),
        TypeKind::U16 => Type::Uint(16),
        TypeKind::U32 => Type::Uint(32),
        TypeKind::U64 => Type::Uint(64),
        TypeKind::F64 => Type::F64,
        TypeKind::Text(n) => Type::Text(*n),
        TypeKind::Bytes(n) => Type::Bytes(*n),
        TypeKind::Size => Type::Size,
        TypeKind::Interval => Type::Interval,
        TypeKind::Timestamp => Type::Timestamp,
        TypeKind::IpAddr => Type::IpAddr,
        TypeKind::Cidr => Type::Cidr,
        TypeKind::Mac => Type::Mac,
        TypeKind::Endpoint => Type::Endpoint,
        TypeKind::Status => Type::Status,
        TypeKind::Named(path) => {
            let name = path.to_dotted();
            let suffix = format!(".{name}");
            let is_meant = |full: &str| full == name || full.ends_with(&suffix);
            schema.enums.iter().find(|known| is_meant(&known.name)).map(|_| Type::Int(32))?
        }
    })
}

/// The type that a protobuf field has in the language; None for messages.
pub fn of_field(kind: FieldKind) -> Option<Type> {
    use FieldKind as F;
    Some(match kind {
        F::Bool => Type::Bool,
        F::Int32 | F::Sint32 | F::Sfixed32 | F::Enum(_) => Type::Int(32),
        F::Int64 | F::Sint64 | F::Sfixed64 => Type::Int(64),
        F::Uint32 | F::Fixed32 => Type::Uint(32),
        F::Uint64 | F::Fixed64 => Type::Uint(64),
        F::Float | F::Double => Type::F64,
        F::String => Type::Text(None),
        F::Bytes => Type::Bytes(None),
        F::Message(_) => return None,
    })
}

/// Whether two types are equal except for the length of TEXT and BYTES.
pub fn is_same(a: Type, b: Type) -> bool {
    without_length(a) == without_length(b)
}

/// TEXT(n) as TEXT, BYTES(n) as BYTES, other types unchanged.
pub fn without_length(ty: Type) -> Type {
    match ty {
        Type::Text(_) => Type::Text(None),
        Type::Bytes(_) => Type::Bytes(None),
        other => other,
    }
}

/// Whether every value of `from` is a value of `to`, and the language converts it implicitly.
///
/// Lengths of TEXT and BYTES are ignored: text that is too long for its column is an error when it is stored.
pub fn widens(from: Type, to: Type) -> bool {
    match (from, to) {
        (Type::Int(a), Type::Int(b)) | (Type::Uint(a), Type::Uint(b)) => a <= b,
        (Type::Uint(a), Type::Int(b)) => a < b,
        _ => is_same(from, to),
    }
}

/// Returns the narrowest type that both widen to. None if there is none.
pub fn common(a: Type, b: Type) -> Option<Type> {
    if a == b {
        return Some(a);
    }
    match (a, b) {
        (Type::Int(_) | Type::Uint(_), Type::Int(_) | Type::Uint(_)) => {
            let candidates = [8, 16, 32, 64].map(Type::Int);
            let (a_wide, b_wide) = (widens(a, b), widens(b, a));
            match (a_wide, b_wide) {
                (true, _) => Some(b),
                (_, true) => Some(a),
                _ => candidates.into_iter().find(|ty| widens(a, *ty) && widens(b, *ty)),
            }
        }
        _ => is_same(a, b).then(|| without_length(a)),
    }
}

/// Whether values of the type have an order.
pub fn is_ordered(ty: Type) -> bool {
    !matches!(ty, Type::Status | Type::Cidr | Type::Mac | Type::Endpoint)
}

/// Whether values of the type are integers, SIZE included.
pub fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::Int(_) | Type::Uint(_) | Type::Size)
}

/// Whether values of the type are numbers, SIZE included.
pub fn is_number(ty: Type) -> bool {
    is_integer(ty) || ty == Type::F64
}

/// The value of an integer that has type `ty`; None if the type is not an integer or cannot hold it.
pub fn integer(n: i128, ty: Type) -> Option<Value> {
    let (low, high) = match ty {
        Type::Int(bits) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        Type::Uint(bits) => (0, (1i128 << bits) - 1),
        Type::Size => (0, i128::from(u64::MAX)),
        _ => return None,
    };
    (low..=high).contains(&n).then_some(Value::Int(n as i64))
}

/// The zero of a type: the initial value of a CALL column or VAR without `= ...`.
pub fn zero(ty: Type) -> Value {
    use weft_core::types::Repr;
    match ty.repr() {
        Repr::Bool => Value::Bool(false),
        Repr::Int => Value::Int(0),
        Repr::Float => Value::Float(0.0),
        Repr::Bytes => Value::Bytes(Vec::new()),
    }
}

/// Reads a string literal as a value of `ty`.
///
/// # Errors
/// What a literal of this type looks like.
pub fn read_text(text: &str, ty: Type) -> Result<Value, String> {
    let value = match ty {
        Type::Text(n) | Type::Bytes(n) => {
            if let Some(n) = n.filter(|n| text.len() > *n as usize) {
                return Err(format!("it has {} bytes, but {ty} holds at most {n}", text.len()));
            }
            Some(Value::text(text))
        }
        Type::Interval => interval(text).map(Value::Int),
        Type::Size => size(text).map(|n| Value::Int(n as i64)),
        Type::Timestamp => timestamp(text).map(Value::Int),
        // `::ffff:10.0.0.1` is the IPv4 node 10.0.0.1 (RFC 4291 section 2.5.5.2).
        Type::IpAddr => text.parse::<IpAddr>().ok().map(|ip| Value::Bytes(octets(ip.to_canonical()))),
        Type::Cidr => cidr(text).map(Value::Bytes),
        Type::Mac => mac(text).map(Value::Bytes),
        Type::Endpoint => endpoint(text).map(|()| Value::text(text)),
        Type::Status => Status::from_name(text).map(|status| Value::Int(i64::from(status.code()))),
        _ => None,
    };
    value.ok_or_else(|| match ty {
        Type::Interval if is_past_bounds(text) => {
            "an INTERVAL is a 63-bit number of nanoseconds: at most '106751 d' (292 years)".to_owned()
        }
        Type::Cidr if is_all_mapped(text) => {
            "the network of all IPv4-mapped addresses is all of IPv4: write '0.0.0.0/0'".to_owned()
        }
        _ => expected_text(ty).to_owned(),
    })
}

fn is_all_mapped(text: &str) -> bool {
    let parts = text.split_once('/').and_then(|(ip, bits)| Some((ip.parse::<IpAddr>().ok()?, bits)));
    parts.is_some_and(|(ip, bits)| ip.to_canonical() != ip && bits.parse() == Ok(MAPPED_BITS))
}

/// Whether a text has the form of an interval, but its number is too large.
fn is_past_bounds(text: &str) -> bool {
    let magnitude = text.trim().trim_start_matches('-');
    let Some((number, unit)) = split_unit(magnitude) else { return false };
    interval(&format!("0 {unit}")).is_some()
        && number.parse::<f64>().is_ok_and(|n| n >= 1.0)
        && interval(text).is_none()
}

/// Describes the text form of a type for an error.
fn expected_text(ty: Type) -> &'static str {
    match ty {
        Type::Interval => "an INTERVAL is a number and a unit: '5 ms', '1.5 s', '2 h' (ns us ms s min h d)",
        Type::Size => {
            "a SIZE is a number and a unit: '512 B', '36 KB', '1.5 MB' (B KB MB GB, powers of 1024)"
        }
        Type::Timestamp => "a TIMESTAMP is '2026-05-01 12:30:00' (UTC)",
        Type::IpAddr => "an IPADDR is '10.0.0.1' or '2001:db8::1'",
        Type::Cidr => "a CIDR is '10.0.0.0/8' or '2001:db8::/32'",
        Type::Mac => "a MAC is '02:00:5e:10:00:01'",
        Type::Endpoint => "an ENDPOINT is 'host:port', '[::1]:port', 'unix:/path', or the name of a cluster",
        Type::Status => "a STATUS is the name of a gRPC status",
        Type::Bool => "a BOOL is TRUE or FALSE, without quotes",
        _ => "a number has no quotes",
    }
}

/// Nanoseconds of `5 ms`, `1.5 s`, `-2 h`; None if the text is not an interval or does not fit.
pub fn interval(text: &str) -> Option<i64> {
    let text = text.trim();
    let (is_negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (number, unit) = split_unit(magnitude)?;
    let nanos_per_unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    let nanos = scaled(number, nanos_per_unit)?;
    i64::try_from(if is_negative { -nanos } else { nanos }).ok()
}

/// Bytes of `36 KB`; None if the text is not a size or does not fit.
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text.trim())?;
    let bytes_per_unit: i128 = match unit {
        "B" => 1,
        "KB" | "KiB" => 1 << 10,
        "MB" | "MiB" => 1 << 20,
        "GB" | "GiB" => 1 << 30,
        "TB" | "TiB" => 1 << 40,
        _ => return None,
    };
    u64::try_from(scaled(number, bytes_per_unit)?).ok()
}

/// Splits `1.5 ms` into `1.5` and `ms`.
fn split_unit(text: &str) -> Option<(&str, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(at);
    (!number.is_empty()).then(|| (number, unit.trim_start()))
}

/// Parses a decimal number times `scale`; None if it is not a number, too large, or not an integer after scaling.
fn scaled(number: &str, scale: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // A number with more digits is not a multiple of a nanosecond, or does not fit.
    if whole.len() > 20 || fraction.len() > 18 || whole.is_empty() {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let mut total = whole.checked_mul(scale)?;
    if !fraction.is_empty() {
        let denominator = 10i128.pow(fraction.len() as u32);
        let numerator = fraction.parse::<i128>().ok()?.checked_mul(scale)?;
        if numerator % denominator != 0 {
            return None;
        }
        total = total.checked_add(numerator / denominator)?;
    }
    Some(total)
}

/// Nanoseconds since the epoch of `2026-05-01 12:30:00[.5]`, with ` ` or `T` between and an optional `Z`.
fn timestamp(text: &str) -> Option<i64> {
    let text = text.trim().trim_end_matches('Z');
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let date: Vec<&str> = date.split('-').collect();
    let time: Vec<&str> = time.split(':').collect();
    let (&[year, month, day], &[hour, minute, second]) = (date.as_slice(), time.as_slice()) else {
        return None;
    };
    let part = |text: &str, low: i64, high: i64| {
        let is_digits = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_digits.then(|| text.parse().ok())?.filter(|n| (low..=high).contains(n))
    };
    let (year, month) = (part(year, 1970, 2261)?, part(month, 1, 12)?);
    let day = part(day, 1, days_in_month(year, month))?;
    let (hour, minute) = (part(hour, 0, 23)?, part(minute, 0, 59)?);
    let second_nanos = scaled(second, 1_000_000_000).filter(|nanos| *nanos < 60_000_000_000)?;
    let minutes = (days_from_epoch(year, month, day) * 24 + hour) * 60 + minute;
    i64::try_from(i128::from(minutes) * 60_000_000_000 + second_nanos).ok()
}

/// Nanoseconds since the epoch as a literal: `2026-05-01 12:30:00`, with fractional seconds if any. Times before the
/// epoch have no literal.
pub(crate) fn timestamp_of(ns: i64) -> String {
    if ns < 0 {
        return format!("{} before 1970", Interval(ns.saturating_neg()));
    }
    let (mut days, ns) = (ns / 86_400_000_000_000, ns % 86_400_000_000_000);
    let mut year = 1970 + days / 366;
    while days_from_epoch(year + 1, 1, 1) <= days {
        year += 1;
    }
    days -= days_from_epoch(year, 1, 1);
    let mut month = 1;
    while days >= days_in_month(year, month) {
        days -= days_in_month(year, month);
        month += 1;
    }
    let (minutes, rest) = (ns / 60_000_000_000, ns % 60_000_000_000);
    let (seconds, rest) = (rest / 1_000_000_000, rest % 1_000_000_000);
    let rest = if rest == 0 { String::new() } else { format!(".{rest:09}").trim_end_matches('0').to_owned() };
    let (hours, minutes) = (minutes / 60, minutes % 60);
    format!("{year}-{month:02}-{:02} {hours:02}:{minutes:02}:{seconds:02}{rest}", days + 1)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Returns the number of days in a month.
fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the number of days from 1970-01-01 to a date.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let years: i64 = (1970..year).map(|year| 365 + i64::from(is_leap(year))).sum();
    let months: i64 = (1..month).map(|month| days_in_month(year, month)).sum();
    years + months + day - 1
}

/// Returns the bytes of an address.
fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The number of bits before the IPv4 address in `::ffff:10.0.0.1`.
const MAPPED_BITS: u8 = 96;

/// Parses an address and its prefix length: `10.0.0.1/24`. `::ffff:10.0.0.1/120` is the same.
pub fn address_within(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
    let bits_max = if address.is_ipv6() { 128 } else { 32 };
    let is_mapped = address.to_canonical() != address;
    match bits {
        _ if bits > bits_max => None,
        // Deny lists contain the network of all mapped addresses and mean IPv6 packets; converted, it would be all of
        // IPv4.
        MAPPED_BITS if is_mapped => None,
        _ if is_mapped && bits > MAPPED_BITS => Some((address.to_canonical(), bits - MAPPED_BITS)),
        _ => Some((address, bits)),
    }
}

/// Address and prefix length, with the host bits set to zero: the network that a text with host bits means. None if the
/// host bits are zero, or if the text is not a network.
pub fn network_of(text: &str) -> Option<String> {
    let (address, length) = address_within(text)?;
    let (_, network) = cidr(text)?.split_last().map(|(length, bytes)| (*length, bytes.to_vec()))?;
    (octets(address) != network).then(|| {
        let address = match <[u8; 4]>::try_from(&*network) {
            Ok(bytes) => IpAddr::from(bytes),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(&*network).unwrap_or_default()),
        };
        format!("{address}/{length}")
    })
}

/// Parses a network: the address bytes with the host bits cleared, and the prefix length.
fn cidr(text: &str) -> Option<Vec<u8>> {
    let (address, length) = address_within(text)?;
    let mut bytes = octets(address);
    for (index, byte) in bytes.iter_mut().enumerate() {
        let n_kept = usize::from(length).saturating_sub(index * 8).min(8);
        *byte &= (0xff00u16 >> n_kept) as u8;
    }
    bytes.push(length);
    Some(bytes)
}

/// Parses a MAC address of six hexadecimal bytes.
fn mac(text: &str) -> Option<Vec<u8>> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|part| (part.len() == 2).then(|| u8::from_str_radix(part, 16).ok()).flatten())
        .collect();
    bytes.filter(|bytes| bytes.len() == 6)
}

/// An endpoint is checked for its syntax only; whether it is reachable is known when it is used.
fn endpoint(text: &str) -> Option<()> {
    let fits = !text.is_empty() && text.len() <= weft_core::limits::ENDPOINT_BYTES_MAX as usize;
    let is_clean = text.bytes().all(|byte| byte.is_ascii_graphic());
    (fits && is_clean).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_exact() {
        // A rounded interval would make a rate limit drift.
        assert_eq!(interval("5 ms"), Some(5_000_000));
        assert_eq!(interval("1.5 s"), Some(1_500_000_000));
        assert_eq!(interval("2h"), Some(7_200_000_000_000));
        assert_eq!(interval("-1 d"), Some(-86_400_000_000_000));
        assert_eq!(interval("0.5 ns"), None);
        assert_eq!(interval("5"), None);
        assert_eq!(interval("5 weeks"), None);
        assert_eq!(interval("999999999999 d"), None);
        assert!(is_past_bounds("106752 d") && !is_past_bounds("106751 d") && !is_past_bounds("5 weeks"));
        assert_eq!(interval("."), None);
        assert_eq!(interval("1..5 s"), None);
    }

    #[test]
    fn addresses_keep_no_host_bits() {
        // `10.1.2.3/8` and `10.0.0.0/8` are the same network and must be the same key.
        assert_eq!(cidr("10.1.2.3/8"), Some(vec![10, 0, 0, 0, 8]));
        assert_eq!(cidr("10.255.2.3/12"), Some(vec![10, 240, 0, 0, 12]));
        assert_eq!(cidr("10.0.0.0/33"), None);
        // IPv4 addresses in IPv6 notation are the same nodes.
        assert_eq!(cidr("::ffff:10.1.2.3/104"), Some(vec![10, 0, 0, 0, 8]));
        assert_eq!(cidr("::ffff:10.1.2.3/64"), Some([&[0; 16][..], &[64]].concat()));
        assert_eq!(network_of("::ffff:10.1.2.3/104").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(read_text("::ffff:10.1.2.3", Type::IpAddr), read_text("10.1.2.3", Type::IpAddr));
        assert!(read_text("::ffff:0:0/96", Type::Cidr).is_err_and(|why| why.contains("0.0.0.0/0")));
        assert_eq!(mac("02:00:5e:10:00:01"), Some(vec![2, 0, 0x5e, 0x10, 0, 1]));
        assert_eq!(mac("02:00:5e:10:00"), None);
    }

    #[test]
    fn timestamps_count_leap_days() {
        assert_eq!(timestamp("1970-01-01 00:00:00"), Some(0));
        assert_eq!(timestamp("2000-03-01T00:00:00Z"), Some(951_868_800_000_000_000));
        assert_eq!(timestamp("2026-02-29 00:00:00"), None);
    }

    #[test]
    fn timestamps_round_trip() {
        // A reader would search for the wrong time.
        for text in [
            "1970-01-01 00:00:00",
            "2000-02-29 23:59:59.5",
            "2024-12-31 12:30:00.000000001",
            "2261-03-01 00:00:01",
        ] {
            assert_eq!(timestamp(text).map(timestamp_of).as_deref(), Some(text));
        }
        for day in 0..106_000 {
            let text = timestamp_of(day * 86_400_000_000_000);
            assert_eq!(timestamp(&text), Some(day * 86_400_000_000_000), "{text}");
        }
    }

    #[test]
    fn widening_never_loses_a_value() {
        // Widening that loses a value would change the result of comparisons.
        assert!(widens(Type::Uint(32), Type::Int(64)) && !widens(Type::Uint(64), Type::Int(64)));
        assert!(!widens(Type::Int(8), Type::Uint(64)) && !widens(Type::Int(64), Type::F64));
        assert_eq!(common(Type::Uint(8), Type::Int(8)), Some(Type::Int(16)));
        assert_eq!(common(Type::Uint(64), Type::Int(8)), None);
        assert_eq!(common(Type::Text(Some(3)), Type::Text(None)), Some(Type::Text(None)));
    }
}
