//! Compression and decompression. Compressed data may come from any peer: it decompresses to at most
//! [`NATIVE_BYTES_MAX`] bytes.

use core::cell::RefCell;
use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use std::io::{Read as _, Write as _};
use weft_core::native::{Call, Ended, NATIVE_BYTES_MAX, Prepared};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

/// The default level of gzip: that of the command-line tool.
const GZIP_LEVEL: i32 = 6;
/// The default level of Zstandard: that of the command-line tool.
const ZSTD_LEVEL: i32 = 3;
/// Largest window when decompressing Zstandard: 2^22 bytes, since no result is longer.
const ZSTD_WINDOW_LOG_MAX: u32 = 22;

// ---- gzip ------------------------------------------------------------------------------------------------------

/// RFC 1952 section 2.3: magic, deflate, no flags, no time, no extra flags, unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

thread_local! {
    static DEFLATE: RefCell<Vec<(i32, Compress)>> = const { RefCell::new(Vec::new()) };
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(false));
    static ZSTD: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static UNZSTD: RefCell<DCtx<'static>> = RefCell::new(unzstd_context());
    static LZ4: RefCell<[FrameEncoder<Vec<u8>>; 2]> =
        RefCell::new([BlockSize::Max64KB, BlockSize::Max1MB].map(lz4_encoder));
}

/// `gzip`.
#[derive(Debug)]
pub(crate) struct Gzip {
    level: i32,
}

impl Gzip {
    pub(crate) fn new(level: Option<i32>) -> Self {
        Self { level: level.unwrap_or(GZIP_LEVEL) }
    }
}

impl Prepared for Gzip {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let data = call.data();
        out.extend_from_slice(&GZIP_HEADER);
        let is_done = DEFLATE.with_borrow_mut(|all| {
            let at = all.iter().position(|(level, _)| *level == self.level).unwrap_or_else(|| {
                all.push((self.level, Compress::new(Compression::new(self.level as u32), false)));
                all.len() - 1
            });
            let deflate = &mut all[at].1;
            deflate.reset();
            deflated(deflate, data, out)
        });
        let mut crc = Crc::new();
        crc.update(data);
        out.extend_from_slice(&crc.sum().to_le_bytes());
        out.extend_from_slice(&(data.len() as u32).to_le_bytes());
        if is_done && out.len() <= NATIVE_BYTES_MAX { Ended::Bytes } else { Ended::Failed }
    }
}

/// Appends all of the data compressed; returns false if that is too long.
fn deflated(deflate: &mut Compress, data: &[u8], out: &mut Vec<u8>) -> bool {
    out.reserve(data.len() / 2 + 64);
    loop {
        let rest = &data[deflate.total_in() as usize..];
        match deflate.compress_vec(rest, out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => return true,
            Ok(_) if out.len() <= NATIVE_BYTES_MAX => out.reserve(out.len().max(64)),
            _ => return false,
        }
    }
}

/// Decompresses all members of a gzip file. Fails on malformed or too long data.
pub(crate) fn gunzip(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let mut rest = call.data();
    // A gzip file has one or more members (RFC 1952 section 2.2).
    loop {
        let Some(behind) = member(rest, out) else { return Ended::Failed };
        if behind.is_empty() {
            return Ended::Bytes;
        }
        rest = behind;
    }
}

/// Appends the content of a member; returns the bytes after it.
fn member<'d>(data: &'d [u8], out: &mut Vec<u8>) -> Option<&'d [u8]> {
    let data = behind_gzip_header(data)?;
    let start = out.len();
    let used = INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        out.reserve((4 * data.len()).clamp(64, NATIVE_BYTES_MAX));
        loop {
            let (made, used) = (out.len(), inflate.total_in() as usize);
            let status = inflate.decompress_vec(&data[used..], out, FlushDecompress::None).ok()?;
            if out.len() > NATIVE_BYTES_MAX {
                return None;
            }
            match status {
                Status::StreamEnd => return Some(inflate.total_in() as usize),
                _ if out.len() == out.capacity() => out.reserve(out.len().max(64)),
                // The bytes end before the stream does.
                _ if out.len() == made && inflate.total_in() as usize == used => return None,
                _ => {}
            }
        }
    })?;
    let (trailer, behind) = data[used..].split_first_chunk::<8>()?;
    let made = &out[start..];
    let mut crc = Crc::new();
    crc.update(made);
    let expected = [crc.sum().to_le_bytes(), (made.len() as u32).to_le_bytes()].concat();
    (trailer[..] == expected).then_some(behind)
}

/// Skips the header of a gzip member (RFC 1952 section 2.3); None if it is malformed.
fn behind_gzip_header(data: &[u8]) -> Option<&[u8]> {
    const HEADER_CRC: u8 = 1 << 1;
    const EXTRA: u8 = 1 << 2;
    const NAME: u8 = 1 << 3;
    const COMMENT: u8 = 1 << 4;
    const RESERVED: u8 = 0b1110_0000;
    let (head, mut rest) = data.split_first_chunk::<10>()?;
    let flags = head[3];
    if head[..3] != GZIP_HEADER[..3] || flags & RESERVED != 0 {
        return None;
    }
    if flags & EXTRA != 0 {
        let (len, behind) = rest.split_first_chunk::<2>()?;
        rest = behind.get(usize::from(u16::from_le_bytes(*len))..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            rest = &rest[rest.iter().position(|byte| *byte == 0)? + 1..];
        }
    }
    if flags & HEADER_CRC != 0 {
        let (expected, behind) = rest.split_first_chunk::<2>()?;
        let mut crc = Crc::new();
        crc.update(&data[..data.len() - rest.len()]);
        if (crc.sum() as u16).to_le_bytes() != *expected {
            return None;
        }
        rest = behind;
    }
    Some(rest)
}

// ---- Zstandard -------------------------------------------------------------------------------------------------

/// `zstd`.
#[derive(Debug)]
pub(crate) struct Zstd {
    level: i32,
}

impl Zstd {
    pub(crate) fn new(level: Option<i32>) -> Self {
        Self { level: level.unwrap_or(ZSTD_LEVEL) }
    }
}

impl Prepared for Zstd {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let data = call.data();
        if data.len() > 4 * NATIVE_BYTES_MAX {
            return Ended::Failed;
        }
        out.reserve(zstd_safe::compress_bound(data.len()));
        let made = ZSTD.with_borrow_mut(|context| {
            let set = context.set_parameter(CParameter::CompressionLevel(self.level));
            set.and_then(|_| context.compress2(out, data))
        });
        match made {
            Ok(len) if len <= NATIVE_BYTES_MAX => Ended::Bytes,
            _ => Ended::Failed,
        }
    }
}

/// Makes a zstd decompressor with a limit on its window.
fn unzstd_context() -> DCtx<'static> {
    let mut context = DCtx::create();
    // If the library refused this, its own larger limit would hold.
    let _ = context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX));
    context
}

/// Decompresses all zstd frames. Fails on malformed or too long data.
pub(crate) fn unzstd(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let data = call.data();
    // A frame may state the length of its content; the code does not rely on it beyond the limit.
    let said = zstd_safe::get_frame_content_size(data).ok().flatten().unwrap_or(4 * data.len() as u64);
    out.reserve(said.clamp(64, NATIVE_BYTES_MAX as u64) as usize);
    let is_done = UNZSTD.with_borrow_mut(|context| {
        let is_ready = context.reset(ResetDirective::SessionOnly).is_ok();
        is_ready && unzstd_all(context, data, out).is_some()
    });
    if is_done { Ended::Bytes } else { Ended::Failed }
}

/// Appends the content of all frames. None if the data is empty, malformed, incomplete or too long.
fn unzstd_all(context: &mut DCtx<'_>, data: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut input = InBuffer::around(data);
    if data.is_empty() {
        return None;
    }
    loop {
        let (made, used) = (out.len(), input.pos());
        let mut output = OutBuffer::around_pos(out, made);
        let wanted = context.decompress_stream(&mut output, &mut input).ok()?;
        if out.len() > NATIVE_BYTES_MAX {
            return None;
        }
        let is_at_end = input.pos() == data.len();
        if is_at_end && wanted == 0 {
            return Some(());
        }
        if out.len() == out.capacity() {
            out.reserve(out.len().max(64));
        } else if is_at_end || out.len() == made && input.pos() == used {
            // The bytes end before the frame does.
            return None;
        }
    }
}

// ---- LZ4 -------------------------------------------------------------------------------------------------------

/// Data up to this length is one block of the smallest size, whose buffers stay in the cache.
const LZ4_SHORT_BYTES_MAX: usize = 64 << 10;

/// Makes an encoder of LZ4 frames with independent blocks of this size and a checksum.
fn lz4_encoder(block_size: BlockSize) -> FrameEncoder<Vec<u8>> {
    let info =
        FrameInfo::new().block_size(block_size).block_mode(BlockMode::Independent).content_checksum(true);
    FrameEncoder::with_frame_info(info, Vec::new())
}

/// Compresses into one LZ4 frame. Fails if data or result are too long.
pub(crate) fn lz4(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let data = call.data();
    if data.len() > 4 * NATIVE_BYTES_MAX {
        return Ended::Failed;
    }
    let is_long = data.len() > LZ4_SHORT_BYTES_MAX;
    let is_done = if data.is_empty() {
        // A reused encoder makes no frame for empty data.
        lz4_frame(&mut lz4_encoder(BlockSize::Max64KB), data, out)
    } else {
        LZ4.with_borrow_mut(|encoders| lz4_frame(&mut encoders[usize::from(is_long)], data, out))
    };
    if is_done && out.len() <= NATIVE_BYTES_MAX { Ended::Bytes } else { Ended::Failed }
}

/// Makes one frame, in the buffer that it lends to the encoder.
fn lz4_frame(encoder: &mut FrameEncoder<Vec<u8>>, data: &[u8], out: &mut Vec<u8>) -> bool {
    core::mem::swap(encoder.get_mut(), out);
    let is_done = encoder.write_all(data).is_ok() && encoder.try_finish().is_ok();
    core::mem::swap(encoder.get_mut(), out);
    is_done
}

/// Decompresses all LZ4 frames. Fails on malformed or too long data.
pub(crate) fn unlz4(call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
    let mut rest = call.data();
    loop {
        let Some((frame, behind)) = lz4_frame_len(rest).and_then(|len| rest.split_at_checked(len)) else {
            return Ended::Failed;
        };
        let room = (NATIVE_BYTES_MAX + 1 - out.len()) as u64;
        let is_whole = FrameDecoder::new(frame).take(room).read_to_end(out).is_ok();
        if !is_whole || out.len() > NATIVE_BYTES_MAX {
            return Ended::Failed;
        }
        if behind.is_empty() {
            return Ended::Bytes;
        }
        rest = behind;
    }
}

/// The length of the first frame, if it is complete: the decoder takes the end of the bytes for the end of the frame.
/// Source: LZ4 Frame Format Description 1.6.4, "General Structure of LZ4 Frame format".
fn lz4_frame_len(data: &[u8]) -> Option<usize> {
    const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
    const BLOCK_CHECKSUM: u8 = 1 << 4;
    const CONTENT_SIZE: u8 = 1 << 3;
    const CONTENT_CHECKSUM: u8 = 1 << 2;
    const DICTIONARY: u8 = 1;
    const UNCOMPRESSED: u32 = 1 << 31;
    let flags = *data.strip_prefix(&MAGIC)?.first()?;
    let flagged = |flag, len: usize| if flags & flag != 0 { len } else { 0 };
    // Flags, the size of blocks, the optional fields that they announce, and a checksum of the header.
    let mut at = MAGIC.len() + 2 + flagged(CONTENT_SIZE, 8) + flagged(DICTIONARY, 4) + 1;
    loop {
        let head = u32::from_le_bytes(*data.get(at..)?.first_chunk()?);
        at += 4;
        if head == 0 {
            return Some(at + flagged(CONTENT_CHECKSUM, 4));
        }
        at += (head & !UNCOMPRESSED) as usize + flagged(BLOCK_CHECKSUM, 4);
    }
}
