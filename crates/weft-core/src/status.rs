//! gRPC statuses, as <https://github.com/grpc/grpc/blob/master/doc/statuscodes.md> lists them.

use core::fmt;

macro_rules! statuses {
    ($($name:ident = $code:literal $text:literal),* $(,)?) => {
        /// The outcome of a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are gRPC's own")]
        pub enum Status { $($name = $code),* }

        impl Status {
            /// All statuses, in the order of their codes.
            pub const ALL: &'static [Status] = &[$(Status::$name),*];

            /// The name as the language and gRPC spell it: `PERMISSION_DENIED`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The status with this code, if gRPC defines one.
            pub const fn from_code(code: u64) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// The status with this name, in upper case.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

statuses! {
    Ok = 0 "OK",
    Cancelled = 1 "CANCELLED",
    Unknown = 2 "UNKNOWN",
    InvalidArgument = 3 "INVALID_ARGUMENT",
    DeadlineExceeded = 4 "DEADLINE_EXCEEDED",
    NotFound = 5 "NOT_FOUND",
    AlreadyExists = 6 "ALREADY_EXISTS",
    PermissionDenied = 7 "PERMISSION_DENIED",
    ResourceExhausted = 8 "RESOURCE_EXHAUSTED",
    FailedPrecondition = 9 "FAILED_PRECONDITION",
    Aborted = 10 "ABORTED",
    OutOfRange = 11 "OUT_OF_RANGE",
    Unimplemented = 12 "UNIMPLEMENTED",
    Internal = 13 "INTERNAL",
    Unavailable = 14 "UNAVAILABLE",
    DataLoss = 15 "DATA_LOSS",
    Unauthenticated = 16 "UNAUTHENTICATED",
}

impl Status {
    /// The number that travels in the `grpc-status` trailer.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
