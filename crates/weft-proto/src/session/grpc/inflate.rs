//! Decompresses messages, up to a limit on their size.

use core::fmt;
use flate2::bufread::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use std::io::Read;

/// Why a message was not decompressed. In each case the message must be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// The `grpc-encoding` is not supported.
    UnknownEncoding(String),
    /// The payload is not exactly one complete stream of that encoding.
    Corrupt,
    /// The decompressed message exceeds the limit.
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
}

/// The encodings that [`inflate`] supports, as in `grpc-accept-encoding`.
pub const ENCODINGS: &str = "identity,deflate,gzip";

/// The supported part of a `grpc-accept-encoding`, possibly empty; `None` if all of it is supported.
pub fn narrow_encodings(offered: &[u8]) -> Option<Vec<u8>> {
    let each = || offered.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let is_known = |name: &[u8]| ENCODINGS.split(',').any(|known| known.as_bytes() == name);
    if each().all(|name| name.is_empty() || is_known(name)) {
        return None;
    }
    let known: Vec<&[u8]> = each().filter(|name| is_known(name)).collect();
    Some(known.join(&b","[..]))
}

/// Bytes to inflate at a time.
const STEP: usize = 16 << 10;

/// Replaces the content of `out` with the decompressed `payload`, of at most `limit` bytes.
///
/// `encoding` is the value of `grpc-encoding`: `identity`, `gzip` (RFC 1952), or `deflate` (RFC 1950, as in HTTP). The
/// payload must be exactly one stream. Decoders differ on bytes after it: some ignore them, some read a second stream.
/// So the receiver's view would be unknown.
///
/// # Errors
///
/// The encoding is unknown, the payload is not one stream of it, or the message is too long. Then the content of `out`
/// is meaningless; its size is at most `limit` and a few bytes.
pub fn inflate(encoding: &str, payload: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), InflateError> {
    out.clear();
    match encoding {
        "identity" if payload.len() > limit => Err(InflateError::TooLong { limit }),
        "identity" => {
            out.extend_from_slice(payload);
            Ok(())
        }
        "gzip" => inflate_gzip(payload, limit, out),
        "deflate" => inflate_zlib(payload, limit, out),
        _ => Err(InflateError::UnknownEncoding(encoding.to_owned())),
    }
}

/// Decompresses a gzip member that must fill the payload, up to `limit` bytes of output.
fn inflate_gzip(payload: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), InflateError> {
    let mut decoder = GzDecoder::new(payload);
    let one_more = (limit as u64).saturating_add(1);
    decoder.by_ref().take(one_more).read_to_end(out).map_err(|_| InflateError::Corrupt)?;
    if out.len() > limit {
        return Err(InflateError::TooLong { limit });
    }
    if decoder.into_inner().is_empty() { Ok(()) } else { Err(InflateError::Corrupt) }
}

/// Decompresses a zlib stream that must fill the payload, up to `limit` bytes of output.
fn inflate_zlib(payload: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), InflateError> {
    let mut decoder = Decompress::new(true);
    loop {
        let (n_read, n_made) = (decoder.total_in(), decoder.total_out());
        // One byte more than the limit distinguishes a message that fits from one that does not.
        out.reserve(STEP.min((limit + 1).saturating_sub(out.len())));
        let rest = &payload[n_read as usize..];
        let status =
            decoder.decompress_vec(rest, out, FlushDecompress::None).map_err(|_| InflateError::Corrupt)?;
        if out.len() > limit {
            return Err(InflateError::TooLong { limit });
        }
        let is_stuck = (decoder.total_in(), decoder.total_out()) == (n_read, n_made);
        match status {
            Status::StreamEnd if decoder.total_in() == payload.len() as u64 => return Ok(()),
            Status::StreamEnd => return Err(InflateError::Corrupt),
            Status::Ok | Status::BufError if is_stuck => return Err(InflateError::Corrupt),
            Status::Ok | Status::BufError => {}
        }
    }
}

impl fmt::Display for InflateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownEncoding(name) => {
                write!(f, "unknown grpc-encoding {name:?}; {ENCODINGS} are known")
            }
            Self::Corrupt => f.write_str("the compressed message is corrupt"),
            Self::TooLong { limit } => {
                write!(f, "the message inflates to more than the limit of {limit} bytes")
            }
        }
    }
}

impl core::error::Error for InflateError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_keeps_readable_encodings() {
        // If this fails, a server answers in an encoding that a chain cannot read.
        let narrowed =
            |offer: &str| narrow_encodings(offer.as_bytes()).map(|v| String::from_utf8(v).unwrap());
        for offer in ["", "gzip", "identity, deflate, gzip", "gzip,"] {
            assert_eq!(narrowed(offer), None, "{offer}");
        }
        assert_eq!(narrowed("snappy,gzip").as_deref(), Some("gzip"));
        assert_eq!(narrowed("gzip, zstd ,identity").as_deref(), Some("gzip,identity"));
        assert_eq!(narrowed("zstd").as_deref(), Some(""));
        assert!(ENCODINGS.split(',').all(|name| {
            !matches!(inflate(name, b"", 9, &mut Vec::new()), Err(InflateError::UnknownEncoding(_)))
        }));
    }
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(data: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn run(encoding: &str, payload: &[u8], limit: usize) -> Result<Vec<u8>, InflateError> {
        let mut out = b"old".to_vec();
        inflate(encoding, payload, limit, &mut out).map(|()| out)
    }

    #[test]
    fn each_encoding_is_decoded() {
        // If this fails, elements do not see compressed messages.
        for data in [&b""[..], b"hello", &[0x5a; 100_000]] {
            let n = data.len();
            assert_eq!(run("identity", data, n).as_deref(), Ok(data));
            assert_eq!(run("gzip", &gzip(data), n).as_deref(), Ok(data));
            assert_eq!(run("deflate", &deflate(data), n).as_deref(), Ok(data));
        }
    }

    #[test]
    fn bomb_stops_at_the_limit() {
        // If this fails, a few kilobytes make us allocate gigabytes.
        let zeros = vec![0; 64 << 20];
        for (encoding, bomb) in [("gzip", gzip(&zeros)), ("deflate", deflate(&zeros))] {
            assert!(bomb.len() < 100_000);
            let mut out = Vec::new();
            let refused = inflate(encoding, &bomb, 1 << 20, &mut out);
            assert_eq!(refused, Err(InflateError::TooLong { limit: 1 << 20 }));
            assert!(out.capacity() <= 4 << 20, "{} bytes", out.capacity());
        }
        assert_eq!(run("identity", &[1, 2], 1), Err(InflateError::TooLong { limit: 1 }));
    }

    #[test]
    fn partial_stream_is_refused() {
        // If this fails, a sender can show one message to us and another to the server.
        for (encoding, whole) in [("gzip", gzip(b"hello")), ("deflate", deflate(b"hello"))] {
            for n in 0..whole.len() {
                assert_eq!(
                    run(encoding, &whole[..n], 100),
                    Err(InflateError::Corrupt),
                    "{encoding} cut at {n}"
                );
            }
            let twice = [&whole[..], &whole].concat();
            assert_eq!(run(encoding, &twice, 100), Err(InflateError::Corrupt));
            let mut flipped = whole;
            *flipped.iter_mut().rev().nth(3).unwrap() ^= 1;
            assert_eq!(run(encoding, &flipped, 100), Err(InflateError::Corrupt), "{encoding} checksum");
        }
        assert_eq!(run("snappy", b"", 9), Err(InflateError::UnknownEncoding("snappy".into())));
        assert_eq!(run("", b"", 9), Err(InflateError::UnknownEncoding("".into())));
    }
}
