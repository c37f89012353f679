//! Header values with a gRPC syntax: `grpc-timeout`, `grpc-message`, `content-type`; and the gRPC status of responses
//! that are not gRPC.

use weft_core::{Interval, Status};

/// Maximum number of digits of a `grpc-timeout`.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// The units of `grpc-timeout` in nanoseconds, from the finest.
const TIMEOUT_UNITS: [(u8, i64); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60 * 1_000_000_000),
    (b'H', 3600 * 1_000_000_000),
];

/// Reads a `grpc-timeout`: one to eight digits and a unit, `H`, `M`, `S`, `m`, `u` or `n`.
///
/// A time beyond the range of [`Interval`] (292 years) saturates. `None` if the syntax is wrong. Then refuse the call,
/// as a server would, because its deadline is unknown.
pub fn parse_timeout(value: &[u8]) -> Option<Interval> {
    let (unit, digits) = value.split_last()?;
    if !(1..=TIMEOUT_DIGITS_MAX).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0'));
    let (_, nanos) = TIMEOUT_UNITS.iter().find(|(name, _)| name == unit)?;
    Some(Interval(count.saturating_mul(*nanos)))
}

/// Appends `timeout` as a `grpc-timeout`, in the finest unit with at most eight digits. Rounds up: a proxy must not
/// shorten a deadline. A negative time becomes `0n`.
pub fn write_timeout(timeout: Interval, out: &mut Vec<u8>) {
    let nanos = timeout.as_nanos().max(0);
    for (unit, length) in TIMEOUT_UNITS {
        let count = nanos / length + i64::from(nanos % length != 0);
        // The longest interval is some 2.6 million hours, so the last unit always fits.
        if count < 10_i64.pow(TIMEOUT_DIGITS_MAX as u32) {
            out.extend_from_slice(count.to_string().as_bytes());
            return out.push(unit);
        }
    }
}

/// Appends `message` as a `grpc-message`. Bytes outside of printable ASCII, and `%`, become `%XX`.
pub fn write_message(message: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in message.as_bytes() {
        match byte {
            b'%' | ..=0x1f | 0x7f.. => {
                out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => out.push(byte),
        }
    }
}

/// Reads a `grpc-message`. It is for people, so it never fails: a `%` without two hex digits stays, and invalid UTF-8
/// becomes U+FFFD.
pub fn parse_message(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, tail @ ..] = rest {
        let (byte, after) = match tail {
            [high, low, after @ ..] if *first == b'%' => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (*first, tail),
            },
            _ => (*first, tail),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The codec that a gRPC `content-type` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Protobuf: `application/grpc` or `application/grpc+proto`.
    Protobuf,
    /// Another codec, such as `application/grpc+json`. Do not read its payloads as protobuf.
    Other,
}

/// The codec of a call with this `content-type`; `None` if the call is not gRPC. gRPC-Web is not.
pub fn parse_content_type(value: &[u8]) -> Option<Codec> {
    let end = value.iter().position(|&b| b == b';').unwrap_or(value.len());
    let media = value[..end].trim_ascii();
    let (name, codec) = media.split_at_checked(b"application/grpc".len())?;
    if !name.eq_ignore_ascii_case(b"application/grpc") {
        return None;
    }
    match codec {
        [] => Some(Codec::Protobuf),
        [b'+', codec @ ..] if codec.eq_ignore_ascii_case(b"proto") => Some(Codec::Protobuf),
        [b'+', _, ..] => Some(Codec::Other),
        _ => None,
    }
}

/// The gRPC status of a call whose response is not gRPC: its `:status` is not 200, or its `content-type` is not one of
/// [`parse_content_type`]. Intermediaries respond that way, such as a proxy that finds no server.
///
/// Only for responses without a `grpc-status`, which has priority.
/// Source: <https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>.
pub const fn status_of_http(http_status: u16) -> Status {
    match http_status {
        400 => Status::Internal,
        401 => Status::Unauthenticated,
        403 => Status::PermissionDenied,
        404 => Status::Unimplemented,
        429 | 502 | 503 | 504 => Status::Unavailable,
        _ => Status::Unknown,
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_parses_in_all_units() {
        // If this fails, a call has another deadline than the client's.
        let cases = [
            ("1H", 3_600_000_000_000),
            ("2M", 120_000_000_000),
            ("30S", 30_000_000_000),
            ("100m", 100_000_000),
            ("00000005u", 5_000),
            ("99999999n", 99_999_999),
            ("0n", 0),
            ("99999999H", i64::MAX),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_timeout(text.as_bytes()), Some(Interval(nanos)), "{text}");
        }
        for text in
            ["", "S", "5", "123456789n", "5s", "5h", "-1S", "+1S", "1.5S", " 1S", "1S ", "1 S", "0x1S"]
        {
            assert_eq!(parse_timeout(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn timeout_rounds_up_in_finest_unit() {
        // If this fails, a deadline shrinks at each hop, or the server refuses the header.
        let shown = |nanos| {
            let mut out = Vec::new();
            write_timeout(Interval(nanos), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(-5), "0n");
        assert_eq!(shown(99_999_999), "99999999n");
        assert_eq!(shown(100_000_001), "100001u");
        assert_eq!(shown(30_000_000_000), "30000000u");
        assert_eq!(shown(i64::MAX), "2562048H");
        for exponent in 0..63 {
            let (nanos, text) = (1 << exponent, shown(1 << exponent));
            let Interval(read) = parse_timeout(text.as_bytes()).unwrap();
            assert!(read >= nanos && read - nanos <= nanos / 1_000, "{nanos} became {text}");
        }
    }

    #[test]
    fn grpc_message_round_trips() {
        // If this fails, an ABORT's text arrives garbled, or splits the header.
        let text = "100 % of \u{e4}pfel\r\n\x7f~";
        let mut out = Vec::new();
        write_message(text, &mut out);
        assert_eq!(out, b"100 %25 of %C3%A4pfel%0D%0A%7F~");
        assert_eq!(parse_message(&out), text);
        assert_eq!(parse_message(b"50% off %zz %4"), "50% off %zz %4");
        assert_eq!(parse_message(b"%c3%a4 %FF"), "\u{e4} \u{fffd}");
    }

    #[test]
    fn content_type_names_grpc_codec() {
        // If this fails, plain HTTP is read as gRPC, or another payload as protobuf.
        let protobuf = ["application/grpc", "application/grpc+proto", "Application/GRPC;charset=utf-8"];
        for text in protobuf {
            assert_eq!(parse_content_type(text.as_bytes()), Some(Codec::Protobuf), "{text}");
        }
        for text in ["application/grpc+json", "application/grpc+thrift; x=y"] {
            assert_eq!(parse_content_type(text.as_bytes()), Some(Codec::Other), "{text}");
        }
        for text in ["application/grpc-web", "application/grpcx", "application/grpc+", "application/json", ""]
        {
            assert_eq!(parse_content_type(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn http_status_maps_to_grpc_status() {
        // If this fails, clients do not retry calls that a proxy could not route, or retry some that are refused.
        let cases = [
            (400, Status::Internal),
            (401, Status::Unauthenticated),
            (403, Status::PermissionDenied),
            (404, Status::Unimplemented),
            (429, Status::Unavailable),
            (502, Status::Unavailable),
            (503, Status::Unavailable),
            (504, Status::Unavailable),
        ];
        for (http, status) in cases {
            assert_eq!(status_of_http(http), status, "{http}");
        }
        for http in [0, 200, 204, 301, 402, 405, 415, 500, 501, 505, u16::MAX] {
            assert_eq!(status_of_http(http), Status::Unknown, "{http}");
        }
    }
}
