//! Frames: headers, types and flags, and error codes (RFC 9113 sections 4, 6, 7).

use core::fmt;

/// The connection preface of a client (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame header in bytes.
pub(crate) const FRAME_HEADER_BYTES: usize = 9;

/// The smallest and initial SETTINGS_MAX_FRAME_SIZE, in bytes.
pub(crate) const MAX_FRAME_SIZE_MIN: u32 = 1 << 14;
/// The largest SETTINGS_MAX_FRAME_SIZE, in bytes.
pub(crate) const MAX_FRAME_SIZE_MAX: u32 = (1 << 24) - 1;
/// The largest flow-control window, in bytes.
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The initial flow-control window of a connection and of its streams, in bytes.
pub(crate) const WINDOW_INITIAL: u32 = 65_535;
/// The largest stream identifier.
pub(crate) const STREAM_ID_MAX: u32 = (1 << 31) - 1;

/// Frame types.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x00;
    pub(crate) const HEADERS: u8 = 0x01;
    pub(crate) const PRIORITY: u8 = 0x02;
    pub(crate) const RST_STREAM: u8 = 0x03;
    pub(crate) const SETTINGS: u8 = 0x04;
    pub(crate) const PUSH_PROMISE: u8 = 0x05;
    pub(crate) const PING: u8 = 0x06;
    pub(crate) const GOAWAY: u8 = 0x07;
    pub(crate) const WINDOW_UPDATE: u8 = 0x08;
    pub(crate) const CONTINUATION: u8 = 0x09;
}

/// Frame flags.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x01;
    pub(crate) const END_STREAM: u8 = 0x01;
    pub(crate) const END_HEADERS: u8 = 0x04;
    pub(crate) const PADDED: u8 = 0x08;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings.
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 0x01;
    pub(crate) const ENABLE_PUSH: u16 = 0x02;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x03;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x04;
    pub(crate) const MAX_FRAME_SIZE: u16 = 0x05;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 0x06;
}

macro_rules! error_codes {
    ($($name:ident = $code:literal $text:literal),* $(,)?) => {
        /// The reason for the end of a stream or a connection (RFC 9113 section 7).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[allow(missing_docs, reason = "the names are the standard's own")]
        pub enum ErrorCode { $($name = $code),* }

        impl ErrorCode {
            /// The standard's name: `ENHANCE_YOUR_CALM`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The code with this number. An unknown number becomes `InternalError`, as section 7 permits.
            pub const fn from_u32(code: u32) -> Self {
                match code { $($code => Self::$name,)* _ => Self::InternalError }
            }
        }
    };
}

error_codes! {
    NoError = 0x00 "NO_ERROR",
    ProtocolError = 0x01 "PROTOCOL_ERROR",
    InternalError = 0x02 "INTERNAL_ERROR",
    FlowControlError = 0x03 "FLOW_CONTROL_ERROR",
    SettingsTimeout = 0x04 "SETTINGS_TIMEOUT",
    StreamClosed = 0x05 "STREAM_CLOSED",
    FrameSizeError = 0x06 "FRAME_SIZE_ERROR",
    RefusedStream = 0x07 "REFUSED_STREAM",
    Cancel = 0x08 "CANCEL",
    CompressionError = 0x09 "COMPRESSION_ERROR",
    ConnectError = 0x0a "CONNECT_ERROR",
    EnhanceYourCalm = 0x0b "ENHANCE_YOUR_CALM",
    InadequateSecurity = 0x0c "INADEQUATE_SECURITY",
    Http11Required = 0x0d "HTTP_1_1_REQUIRED",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    /// Length of the payload in bytes, below 2^24.
    pub(crate) len: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// The stream identifier without the reserved bit.
    pub(crate) stream: u32,
}

impl FrameHead {
    /// Reads the header at the start of `bytes`, if it is complete.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<FRAME_HEADER_BYTES>()?;
        Some(Self {
            len: u32::from_be_bytes([0, b[0], b[1], b[2]]),
            kind: b[3],
            flags: b[4],
            stream: u32::from_be_bytes([b[5], b[6], b[7], b[8]]) & STREAM_ID_MAX,
        })
    }

    /// The encoded header.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let [_, l0, l1, l2] = self.len.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub(crate) fn has(self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// Reads a big-endian number from the start of `bytes`, which has at least four.
#[inline]
pub(crate) fn be_u32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frame_header_round_trips(len in 0u32..1 << 24, kind: u8, flags: u8, stream in 0u32..1 << 31) {
            let head = FrameHead { len, kind, flags, stream };
            prop_assert_eq!(FrameHead::parse(&head.to_bytes()), Some(head));
        }
    }

    #[test]
    fn reserved_bit_is_ignored() {
        let bytes = [0, 0, 1, 0, 0, 0x80, 0, 0, 5];
        assert_eq!(FrameHead::parse(&bytes).map(|h| h.stream), Some(5));
        assert_eq!(FrameHead::parse(&bytes[..8]), None);
    }

    #[test]
    fn unknown_error_code_is_internal() {
        assert_eq!(ErrorCode::from_u32(0x0b), ErrorCode::EnhanceYourCalm);
        assert_eq!(ErrorCode::from_u32(0x7777), ErrorCode::InternalError);
    }
}
