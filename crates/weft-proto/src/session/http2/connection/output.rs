//! The output buffer of an HTTP/2 connection, with bounds on the control frames and PING answers that wait in it.

use crate::session::http2::frame::{FRAME_HEADER_BYTES, FrameHead, flag, kind};

/// A contiguous buffer: frames are appended, and the owner takes bytes from the front.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    start: usize,
    /// Number of bytes taken so far.
    n_taken: u64,
    /// An upper bound on the acknowledgements and resets in the buffer.
    n_controls: u32,
    /// An upper bound on the bytes of answers to PING.
    pong_bytes: usize,
}

/// Minimum size of a control frame, in bytes.
const CONTROL_BYTES_MIN: usize = FRAME_HEADER_BYTES;

impl Output {
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Removes the first `n` bytes, which the owner has taken.
    pub(super) fn advance(&mut self, n: usize) {
        self.start += n;
        self.n_taken += n as u64;
        assert!(self.start <= self.bytes.len(), "more was taken than was there");
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            self.pong_bytes = 0;
        }
        let fitting = (self.bytes.len() - self.start) / CONTROL_BYTES_MIN;
        self.n_controls = self.n_controls.min(u32::try_from(fitting).unwrap_or(u32::MAX));
    }

    pub(super) fn n_taken(&self) -> u64 {
        self.n_taken
    }

    /// Frees the buffer if it is empty.
    pub(super) fn trim(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    pub(super) fn n_controls(&self) -> u32 {
        self.n_controls
    }

    /// Whether there are bytes other than answers to PING.
    pub(super) fn is_urgent(&self) -> bool {
        self.pending().len() > self.pong_bytes
    }

    /// Appends an answer to a PING.
    pub(super) fn write_pong(&mut self, payload: &[u8]) {
        self.write_control(kind::PING, flag::ACK, 0, payload);
        self.pong_bytes += FRAME_HEADER_BYTES + payload.len();
    }

    pub(super) fn write_raw(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a small frame.
    pub(super) fn write_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.make_room(FRAME_HEADER_BYTES + payload.len());
        let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
        self.bytes.extend_from_slice(&head.to_bytes());
        self.bytes.extend_from_slice(payload);
    }

    /// Appends a frame that the peer caused.
    pub(super) fn write_control(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.n_controls += 1;
        self.write_frame(kind, flags, stream, payload);
    }

    /// Appends one DATA frame with `prefix` and `data`.
    #[inline]
    pub(super) fn write_data(&mut self, stream: u32, prefix: &[u8], data: &[u8], end_stream: bool) {
        let len = prefix.len() + data.len();
        self.make_room(FRAME_HEADER_BYTES + len);
        let flags = if end_stream { flag::END_STREAM } else { 0 };
        let head = FrameHead { len: len as u32, kind: kind::DATA, flags, stream };
        self.bytes.extend_from_slice(&head.to_bytes());
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(data);
    }

    /// Appends the header block that `encode` writes, split into frames of at most `max_frame_bytes`.
    pub(super) fn write_headers(
        &mut self,
        stream: u32,
        end_stream: bool,
        max_frame_bytes: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        self.make_room(FRAME_HEADER_BYTES + 256);
        let head_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        encode(&mut self.bytes);
        let block_at = head_at + FRAME_HEADER_BYTES;
        let len = self.bytes.len() - block_at;
        let end = if end_stream { flag::END_STREAM } else { 0 };
        let mut head =
            FrameHead { len: len as u32, kind: kind::HEADERS, flags: end | flag::END_HEADERS, stream };
        if len <= max_frame_bytes {
            self.bytes[head_at..block_at].copy_from_slice(&head.to_bytes());
            return;
        }
        let block = self.bytes.split_off(block_at);
        self.bytes.truncate(head_at);
        head.flags = end;
        let mut pieces = block.chunks(max_frame_bytes).peekable();
        while let Some(piece) = pieces.next() {
            head.len = piece.len() as u32;
            if pieces.peek().is_none() {
                head.flags |= flag::END_HEADERS;
            }
            self.bytes.extend_from_slice(&head.to_bytes());
            self.bytes.extend_from_slice(piece);
            (head.kind, head.flags) = (kind::CONTINUATION, 0);
        }
    }

    /// Makes room for `n` bytes. Once as many bytes are sent as are waiting, the sent ones are overwritten instead of
    /// growing the buffer; so each byte moves about once.
    #[inline]
    fn make_room(&mut self, n: usize) {
        if self.bytes.len() + n > self.bytes.capacity()
            && self.start * 2 >= self.bytes.len()
            && self.start > 0
        {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_reader_reuses_the_buffer() {
        let mut out = Output::default();
        for i in 0..10_000u32 {
            out.write_frame(kind::PING, 0, 0, &u64::from(i).to_be_bytes());
            if i >= 10 {
                let expected = u64::from(i - 10).to_be_bytes();
                assert_eq!(out.pending()[FRAME_HEADER_BYTES..][..8], expected);
                out.advance(FRAME_HEADER_BYTES + 8);
            }
        }
        assert!(out.bytes.capacity() < 1024, "{}", out.bytes.capacity());
    }

    #[test]
    fn large_header_block_is_split() {
        let mut out = Output::default();
        out.write_headers(3, true, 4, |bytes| bytes.extend_from_slice(b"0123456789"));
        let expected: [&[u8]; 6] = [
            &[0, 0, 4, kind::HEADERS, flag::END_STREAM, 0, 0, 0, 3],
            b"0123",
            &[0, 0, 4, kind::CONTINUATION, 0, 0, 0, 0, 3],
            b"4567",
            &[0, 0, 2, kind::CONTINUATION, flag::END_HEADERS, 0, 0, 0, 3],
            b"89",
        ];
        assert_eq!(out.pending(), expected.concat());
    }
}
