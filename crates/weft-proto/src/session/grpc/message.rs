//! Length-prefixed messages: a flag byte, four bytes of length (big-endian), the payload.

use core::fmt;

/// Size of a message's header in bytes.
pub const HEADER_BYTES: usize = 5;

/// The default limit of a [`Deframer`] in bytes, the same as gRPC's own.
pub const MESSAGE_MAX: u32 = 4 << 20;

/// A message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The payload is compressed with the encoding in the `grpc-encoding` header.
    pub compressed: bool,
    /// The message without its header.
    pub payload: &'a [u8],
}

/// The stream does not contain acceptable gRPC messages. It cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The flag byte has undefined bits: a fault of the peer.
    UnknownFlags(u8),
    /// The message exceeds the limit.
    TooLong {
        /// The announced length, in bytes.
        length: u32,
        /// The limit, in bytes.
        limit: u32,
    },
}

/// Splits the DATA bytes of one direction of a stream into messages.
///
/// It holds no heap memory between messages. For an incomplete message it holds at most twice its received bytes: an
/// announced length alone allocates nothing.
#[derive(Clone, Debug)]
pub struct Deframer {
    limit: u32,
    n_header: u8,
    header: [u8; HEADER_BYTES],
    body: Vec<u8>,
}

/// The header of a message of `length` bytes.
pub const fn header(compressed: bool, length: u32) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = length.to_be_bytes();
    [compressed as u8, a, b, c, d]
}

impl Default for Deframer {
    fn default() -> Self {
        Self::new(MESSAGE_MAX)
    }
}

impl Deframer {
    /// A deframer with a limit in bytes.
    pub const fn new(limit: u32) -> Self {
        Self { limit, n_header: 0, header: [0; HEADER_BYTES], body: Vec::new() }
    }

    /// Returns the next message, if its last byte is in `input`. Removes the consumed bytes from the front of
    /// `input`. Call it until it returns `None`; then all of `input` is consumed.
    ///
    /// A payload that is completely in `input` is borrowed from it; otherwise it is borrowed from the deframer.
    ///
    /// # Errors
    ///
    /// The message has unknown flags or is too long. Each later call returns the same error.
    pub fn next<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Result<Option<Message<'a>>, MessageError> {
        if self.n_header == 0 {
            // The last call's message is no longer borrowed.
            self.body = Vec::new();
        }
        let Some(header) = self.take_header(input) else { return Ok(None) };
        let (compressed, length) = parse_header(header, self.limit)?;
        if self.body.is_empty() && input.len() >= length {
            self.n_header = 0;
            let (payload, rest) = input.split_at(length);
            *input = rest;
            return Ok(Some(Message { compressed, payload }));
        }
        let missing = length - self.body.len();
        let (part, rest) = input.split_at(missing.min(input.len()));
        *input = rest;
        self.gather(part, missing);
        if part.len() < missing {
            return Ok(None);
        }
        self.n_header = 0;
        Ok(Some(Message { compressed, payload: &self.body }))
    }

    /// The limit in bytes.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes the limit for the following messages.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// True between messages. A stream that ends while it is false was truncated.
    pub fn is_empty(&self) -> bool {
        self.n_header == 0
    }

    /// Heap memory in bytes.
    pub fn held_bytes(&self) -> usize {
        self.body.capacity()
    }

    /// Moves input to the message header. Returns the header once it is complete.
    fn take_header(&mut self, input: &mut &[u8]) -> Option<[u8; HEADER_BYTES]> {
        let have = usize::from(self.n_header);
        let (part, rest) = input.split_at((HEADER_BYTES - have).min(input.len()));
        *input = rest;
        self.header[have..have + part.len()].copy_from_slice(part);
        self.n_header += part.len() as u8;
        (usize::from(self.n_header) == HEADER_BYTES).then_some(self.header)
    }

    /// Appends a part of the body. `missing` is the number of bytes up to the end of the message.
    fn gather(&mut self, part: &[u8], missing: usize) {
        if self.body.capacity() - self.body.len() < part.len() {
            // Double the capacity, but not beyond the message.
            self.body.reserve_exact(part.len().max(self.body.len()).min(missing));
        }
        self.body.extend_from_slice(part);
    }
}

/// Parses a message header. Returns whether the message is compressed, and its length in bytes.
fn parse_header(header: [u8; HEADER_BYTES], limit: u32) -> Result<(bool, usize), MessageError> {
    let [flags, length @ ..] = header;
    if flags > 1 {
        return Err(MessageError::UnknownFlags(flags));
    }
    let length = u32::from_be_bytes(length);
    if length > limit {
        return Err(MessageError::TooLong { length, limit });
    }
    Ok((flags == 1, length as usize))
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFlags(flags) => write!(f, "a gRPC message with unknown flags 0x{flags:02x}"),
            Self::TooLong { length, limit } => {
                write!(f, "a gRPC message of {length} bytes; the limit is {limit} bytes")
            }
        }
    }
}

impl core::error::Error for MessageError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        [&header(false, payload.len() as u32)[..], payload].concat()
    }

    /// Feeds `stream` in chunks of `n` bytes.
    fn cut(stream: &[u8], n: usize) -> Vec<Vec<u8>> {
        let mut deframer = Deframer::default();
        let mut messages = Vec::new();
        for mut chunk in stream.chunks(n) {
            while let Some(message) = deframer.next(&mut chunk).unwrap() {
                messages.push(message.payload.to_vec());
            }
            assert!(chunk.is_empty());
        }
        assert!(deframer.is_empty());
        messages
    }

    #[test]
    fn chunking_does_not_change_messages() {
        // If this fails, a message is lost or garbled when DATA frames do not match messages.
        let messages = [b"".to_vec(), b"a".to_vec(), vec![7; 300], b"".to_vec(), b"xyz".to_vec()];
        let stream: Vec<u8> = messages.iter().flat_map(|m| frame(m)).collect();
        for n in 1..=stream.len() {
            assert_eq!(cut(&stream, n), messages, "chunks of {n}");
        }
    }

    #[test]
    fn whole_message_is_borrowed() {
        // If this fails, each message costs a copy, or each idle stream costs memory.
        let stream = frame(b"hello");
        let (mut deframer, mut input) = (Deframer::default(), &stream[..]);
        let message = deframer.next(&mut input).unwrap().unwrap();
        assert!(core::ptr::eq(message.payload.as_ptr(), &stream[5]));
        let (mut head, mut tail) = stream.split_at(7);
        assert_eq!(deframer.next(&mut head), Ok(None));
        assert!(!deframer.is_empty());
        assert_eq!(deframer.next(&mut tail).unwrap().unwrap().payload, b"hello");
        assert_eq!(deframer.next(&mut tail), Ok(None));
        assert_eq!(deframer.body.capacity(), 0);
    }

    #[test]
    fn announced_length_allocates_nothing() {
        // If this fails, five bytes per stream exhaust our memory.
        let mut deframer = Deframer::default();
        let header = header(false, MESSAGE_MAX);
        assert_eq!(deframer.next(&mut &header[..]), Ok(None));
        assert_eq!(deframer.next(&mut &[1, 2][..]), Ok(None));
        assert!(deframer.body.capacity() <= 4);
    }

    #[test]
    fn flag_and_length_are_checked() {
        // If this fails, a peer can hide a payload behind a flag, or make us buffer without limit.
        let mut deframer = Deframer::new(10);
        let too_long = header(true, 11);
        for mut input in [&too_long[..], &[]] {
            let refused = deframer.next(&mut input);
            assert_eq!(refused, Err(MessageError::TooLong { length: 11, limit: 10 }));
        }
        let shown = MessageError::TooLong { length: 11, limit: 10 }.to_string();
        assert_eq!(shown, "a gRPC message of 11 bytes; the limit is 10 bytes");
        for flags in [0x02, 0x80, 0x81] {
            let bytes = [flags, 0, 0, 0, 0];
            assert_eq!(Deframer::default().next(&mut &bytes[..]), Err(MessageError::UnknownFlags(flags)));
        }
        let mut compressed = &[1, 0, 0, 0, 1, 9][..];
        assert!(Deframer::default().next(&mut compressed).unwrap().is_some_and(|m| m.compressed));
    }
}
