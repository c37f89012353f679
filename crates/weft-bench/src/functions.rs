//! The native functions: nanoseconds per call and per byte, compared with direct calls of their libraries.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_core::native::{Arg, Call, Ended, NATIVES, Native, NativeDecl, Param, Prepared};
use weft_core::{Time, Value};
use weft_native::{ENTROPY_BYTES, Secrets, by_hand, prepare};

use super::report::{Report, Row};

/// Bytes of the first argument.
const SIZES: [(usize, &str); 3] = [(64, "64 B"), (1 << 10, "1 KiB"), (64 << 10, "64 KiB")];
/// The least duration of a measurement.
const BATCH: Duration = Duration::from_millis(4);

const KEY: [u8; 32] = [9; 32];
/// The searched pattern: a group at the end of the text.
const PATTERN: &str = r"id=(\d+)$";

/// Measures every function at every size.
pub(super) fn run(quick: bool) -> Report {
    let rounds = if quick { 3 } else { 9 };
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for info in NATIVES {
        super::progress(info.name);
        for (size, shown) in SIZES {
            match measured(info.native, size, rounds) {
                Ok(figures) => rows.extend(figures.rows(&format!("{} {shown}", info.name), size)),
                Err(why) => failures.push(format!("{} {shown}: {why}", info.name)),
            }
        }
    }
    let notes = vec![
        "compressors have text that gets 3 to 4 times smaller; what takes back has as many bytes as come out"
            .to_owned(),
        "by hand: a context for each call and a vector for each result, as in the libraries' examples"
            .to_owned(),
    ];
    Report { bench: "functions", rows, notes, failures }
}

struct Figures {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Figures {
    /// The rows of one function at one size: nanoseconds per call, compared with the library, and per byte.
    fn rows(self, name: &str, size: usize) -> [Row; 2] {
        let a_byte: Vec<f64> = self.ours.iter().map(|ns| ns / size as f64).collect();
        let call = Row::new(name, "a call", "ns", &self.ours);
        let call =
            if self.theirs.is_empty() { call } else { call.against("by hand", &self.ours, &self.theirs) };
        [call, Row::new(name, "a byte", "ns", &a_byte)]
    }
}

/// Times calls of a native function, and of its library by hand, in each round. Fails if a call fails.
fn measured(native: Native, size: usize, rounds: usize) -> Result<Figures, String> {
    let function = prepare_native(native)?;
    let data = argument(native, size)?;
    let args = args(native, &data);
    let mut out = Vec::new();
    let ended = function.call(&call(&args), &mut out);
    if matches!(ended, Ended::Failed | Ended::Null) {
        return Err(format!("it ended with {ended:?}"));
    }
    let pattern = if native == Native::MatchesAny { "id=" } else { PATTERN };
    let by_hand = by_hand::of(native, pattern, &KEY);
    let mut figures = Figures { ours: Vec::new(), theirs: Vec::new() };
    for _ in 0..rounds {
        figures.ours.push(ns_a_call(|| {
            out.clear();
            black_box(function.call(&call(black_box(&args)), &mut out));
        }));
        figures.theirs.extend(by_hand.as_ref().map(|by_hand| ns_a_call(|| by_hand(black_box(&data)))));
    }
    Ok(figures)
}

/// Calls `one` in growing batches for at least [`BATCH`]. Returns the nanoseconds per call.
fn ns_a_call(mut one: impl FnMut()) -> f64 {
    let (began, mut n, mut batch) = (Instant::now(), 0u64, 1);
    loop {
        (0..batch).for_each(|_| one());
        n += batch;
        let took = began.elapsed();
        if took >= BATCH {
            return took.as_nanos() as f64 / n as f64;
        }
        batch = (batch * 2).min(1 << 12);
    }
}

/// Prepares a native function with the constants, options and key that this benchmark gives it.
fn prepare_native(native: Native) -> Result<Arc<dyn Prepared>, String> {
    let info = native.info();
    let constant = |param: &Param| match param {
        Param::Pattern => PATTERN,
        Param::Pointer => "/last/id",
        Param::Constants => "id=",
        _ => "-",
    };
    let constants = info.params.iter().filter(|param| param.is_constant());
    let options = match native {
        Native::JwtVerify => vec![("algorithm".to_owned(), Value::text("HS256"))],
        _ => Vec::new(),
    };
    let decl = NativeDecl {
        name: info.name.to_owned(),
        native,
        constants: constants.map(|param| constant(param).to_owned()).collect(),
        options,
        site: 1,
        cost: info.cost,
    };
    let key = info.needs_key.then_some(&KEY[..]);
    prepare(&decl, &Secrets { key, entropy: [1; ENTROPY_BYTES] }).map_err(|error| error.to_string())
}

fn call<'a>(args: &'a [Arg<'a>]) -> Call<'a> {
    Call { args, now: Time(0), rand: 7 }
}

/// The arguments of a call, with `data` as the first.
fn args(native: Native, data: &[u8]) -> Vec<Arg<'_>> {
    match native {
        Native::RandomHex => vec![Arg::Int(data.len().min(1024) as i64)],
        Native::MaglevSlot => vec![Arg::Bytes(data), Arg::Int(7)],
        Native::Network => vec![Arg::Bytes(data), Arg::Int(64)],
        Native::MssAtMost => vec![Arg::Bytes(data), Arg::Int(1220)],
        Native::RegexCapture => vec![Arg::Bytes(data), Arg::Int(1)],
        Native::JsonSet => vec![Arg::Bytes(data), Arg::Bytes(b"new")],
        _ => vec![Arg::Bytes(data)],
    }
}

/// The first argument: this many bytes, or the input for an output of this many bytes.
fn argument(native: Native, size: usize) -> Result<Vec<u8>, String> {
    let data = match native {
        Native::JsonGet | Native::JsonSet => return Ok(json(size)),
        Native::JwtVerify => return token(size),
        // It has no other size.
        Native::Address => return Ok(b"[2001:db8:85a3::8a2e:370:7334]:443".to_vec()),
        Native::GroupMac => {
            return Ok(std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1).octets().to_vec());
        }
        Native::SolicitedNode | Native::Network => {
            return Ok(std::net::Ipv6Addr::LOCALHOST.octets().to_vec());
        }
        Native::DnsName => return Ok(name(size)),
        _ => text(size),
    };
    let Some(made_by) = native.info().inverse else { return Ok(data) };
    native_output(made_by, &data)
}

/// Runs a native function once on `data`, and returns its output.
fn native_output(native: Native, data: &[u8]) -> Result<Vec<u8>, String> {
    let mut made = Vec::new();
    match prepare_native(native)?.call(&call(&[Arg::Bytes(data)]), &mut made) {
        Ended::Bytes => Ok(made),
        ended => Err(format!("{} ended with {ended:?}", native.name())),
    }
}

/// A domain name with labels of seven characters, up to the maximum length.
fn name(size: usize) -> Vec<u8> {
    (0..size.min(254) / 8).flat_map(|_| *b"\x07example").chain([0]).collect()
}

/// Makes a text of `size` bytes: a log of orders that ends with the searched pattern.
fn text(size: usize) -> Vec<u8> {
    let mut text = String::new();
    for n in 0.. {
        let drawn = weft_core::hash::hash_word(n);
        text += &format!("order {} of user-{} to shelf {}; ", drawn % 100_000, drawn >> 50, drawn >> 20 & 63);
        if text.len() >= size {
            break;
        }
    }
    text.truncate(size - 6);
    (text + " id=42")[..size].to_owned().into_bytes()
}

/// Makes a JSON object of at most `size` bytes: orders, and a last one with the searched field.
fn json(size: usize) -> Vec<u8> {
    let mut json = String::from("{");
    for n in 0.. {
        let drawn = weft_core::hash::hash_word(n);
        let order = format!("\"o{n}\":{{\"user\":\"u{}\",\"n\":{}}},", drawn >> 50, drawn % 1000);
        if json.len() + order.len() + 24 > size {
            break;
        }
        json += &order;
    }
    (json + "\"last\":{\"id\":\"last\"}}").into_bytes()
}

/// A token with this many bytes of claims, signed with HS256.
fn token(size: usize) -> Result<Vec<u8>, String> {
    let encoded = |data: &[u8]| native_output(Native::Base64Url, data);
    // The size of a token is limited, and so are its claims.
    let claims = format!("{{\"sub\":\"{}\"}}", "a".repeat(size.min(8 << 10)));
    let mut token = [encoded(b"{\"alg\":\"HS256\"}")?, encoded(claims.as_bytes())?].join(&b'.');
    let signature = native_output(Native::HmacSha256, &token)?;
    token.push(b'.');
    token.extend(encoded(&signature)?);
    Ok(token)
}
