//! Native functions: functions of the language that are implemented in Rust, in their own crate.
//!
//! [`NATIVES`] is the only table of them: the checker reads signatures from it, the planner effects, costs and
//! inverses, the reference manual its text. [`NativeDecl`] names a function together with everything that is known
//! before the program runs. A [`Prepared`] function is such a declaration, ready to be called.

use crate::time::Time;
use crate::types::{Type, Value};
use core::fmt;
use core::str::FromStr;

/// Maximum number of values that one call takes. Constants such as patterns do not count.
pub const NATIVE_ARGS_MAX: usize = 4;
/// Maximum number of bytes that one call returns; a longer result is an error. It equals the maximum size of a message,
/// so that a few bytes cannot decompress to more.
pub const NATIVE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of slots of [`Native::MaglevSlot`]: with more, their shares of its table would differ by more than 2
/// %.
pub const MAGLEV_SLOTS_MAX: i64 = 1024;
/// Bytes of a random id.
pub const RANDOM_BYTES_MAX: i64 = 1024;

const _: () = assert!(RANDOM_BYTES_MAX as usize <= NATIVE_BYTES_MAX && NATIVE_BYTES_MAX <= u32::MAX as usize);

/// A native function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "`NATIVES` says what each does")]
pub enum Native {
    Address,
    Base64,
    Base64Url,
    DnsName,
    GroupMac,
    Gunzip,
    Gzip,
    Hex,
    JsonGet,
    JsonSet,
    Lz4,
    MaglevSlot,
    MatchesAny,
    MssAtMost,
    Network,
    RandomHex,
    RegexCapture,
    RegexMatch,
    RegexReplace,
    Sha256,
    SolicitedNode,
    Unbase64,
    Unbase64Url,
    Unhex,
    Unlz4,
    Unzstd,
    Utf8,
    Xxh3,
    Zstd,
    Aes256GcmOpen,
    Aes256GcmSeal,
    ChaCha20Poly1305Open,
    ChaCha20Poly1305Seal,
    HmacSha256,
    JwtVerify,
}

/// A parameter of a native function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// TEXT or BYTES.
    Data,
    /// TEXT.
    Text,
    /// BYTES.
    Bytes,
    /// I64.
    Int,
    /// IPADDR: 4 or 16 bytes.
    Address,
    /// TEXT, BOOL, I64 or F64.
    Scalar,
    /// A regular expression that is known before the program runs.
    Pattern,
    /// A JSON pointer (RFC 6901) that is known before the program runs.
    Pointer,
    /// A text constant that is known before the program runs.
    Constant,
    /// One or more such constants; only as the last parameter.
    Constants,
}

impl Param {
    /// Whether the value belongs to the declaration and not to the call.
    pub const fn is_constant(self) -> bool {
        matches!(self, Self::Pattern | Self::Pointer | Self::Constant | Self::Constants)
    }

    /// The type in a signature.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Data => "TEXT or BYTES",
            Self::Text => "TEXT",
            Self::Bytes => "BYTES",
            Self::Int => "I64",
            Self::Address => "IPADDR",
            Self::Scalar => "TEXT, BOOL, I64 or F64",
            Self::Pattern => "'pattern'",
            Self::Pointer => "'pointer'",
            Self::Constant => "'text'",
            Self::Constants => "'text', ...",
        }
    }
}

/// What a call depends on besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing.
    Pure,
    /// The random draws of the message, as `rand()`: the same in each replay, in any order.
    Random,
    /// `now()`.
    Clock,
    /// A nonce: no two calls give the same result, because each takes a nonce that was never used under its key. The
    /// inverse of the result does not depend on the nonce.
    Nonce,
}

impl Effect {
    /// The keyword of the `EFFECT` clause.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pure => "PURE",
            Self::Random | Self::Nonce => "RANDOM",
            Self::Clock => "CLOCK",
        }
    }
}

/// The cost of a call, measured by `weft bench functions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NativeCost {
    /// Fixed nanoseconds per call.
    pub base_ns: u32,
    /// Nanoseconds per 1024 bytes of the first argument.
    pub ns_per_kib: u32,
}

impl NativeCost {
    /// The estimate in nanoseconds for a first argument of this many bytes.
    pub fn ns(self, bytes: u64) -> u64 {
        u64::from(self.base_ns).saturating_add(u64::from(self.ns_per_kib).saturating_mul(bytes) / 1024)
    }
}

/// An option of `WITH (...)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeOption {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub ty: Type,
    /// Its purpose.
    pub doc: &'static str,
}

/// The entry of a native function in [`NATIVES`].
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The function.
    pub native: Native,
    /// Its name in programs, in lower case.
    pub name: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// The type of its result.
    pub result: Type,
    /// It may return NULL.
    pub nullable: bool,
    /// The condition for the error value `function failed`; None if it never fails.
    pub fails: Option<&'static str>,
    /// A sentence about what it does.
    pub doc: &'static str,
    /// What its result depends on.
    pub effect: Effect,
    /// Its cost.
    pub cost: NativeCost,
    /// The function that it inverts: `self(inverse(x)) = x` for every x.
    pub inverse: Option<Native>,
    /// The options that a declaration may set.
    pub options: &'static [NativeOption],
    /// It needs a key, so a declaration must name the key.
    pub needs_key: bool,
}

impl Info {
    /// Maximum number of bytes that a call returns; a longer result is the error `function failed`.
    pub fn bytes_max(&self) -> usize {
        self.result.bytes_max().map_or(NATIVE_BYTES_MAX, |max| NATIVE_BYTES_MAX.min(max as usize))
    }

    /// Makes a pure, infallible function with a result that is never NULL; the builder methods change that.
    const fn new(
        native: Native,
        name: &'static str,
        params: &'static [Param],
        result: Type,
        doc: &'static str,
    ) -> Self {
        Self {
            native,
            name,
            params,
            result,
            nullable: false,
            fails: None,
            doc,
            effect: Effect::Pure,
            cost: NativeCost { base_ns: 0, ns_per_kib: 0 },
            inverse: None,
            options: &[],
            needs_key: false,
        }
    }

    const fn fails(self, when: &'static str) -> Self {
        Self { fails: Some(when), ..self }
    }

    const fn or_null(self) -> Self {
        Self { nullable: true, ..self }
    }

    const fn costs(self, base_ns: u32, ns_per_kib: u32) -> Self {
        Self { cost: NativeCost { base_ns, ns_per_kib }, ..self }
    }

    const fn inverts(self, native: Native) -> Self {
        Self { inverse: Some(native), ..self }
    }

    const fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    const fn options(self, options: &'static [NativeOption]) -> Self {
        Self { options, ..self }
    }

    const fn keyed(self, options: &'static [NativeOption]) -> Self {
        Self { options, needs_key: true, ..self }
    }

    /// Whether it fails only because its result would be too long.
    pub fn fails_for_length(&self) -> bool {
        self.fails == Some(LONGER)
    }

    /// The signature in readable form: `gzip(TEXT or BYTES) BYTES`.
    pub fn signature(&self) -> String {
        let params: Vec<&str> = self.params.iter().map(|param| param.text()).collect();
        let null = if self.nullable { "?" } else { "" };
        format!("{}({}) {}{null}", self.name, params.join(", "), self.result)
    }
}

/// Most functions that make bytes fail only for this reason.
const LONGER: &str = "the result would be longer than 4 MiB";
const TEXT: Type = Type::Text(None);
const BYTES: Type = Type::Bytes(None);
const I64: Type = Type::Int(64);

const fn option(name: &'static str, ty: Type, doc: &'static str) -> NativeOption {
    NativeOption { name, ty, doc }
}

const KEY_FILE: NativeOption = option("key_file", TEXT, "the file that holds the key");
const KEY_ENV: NativeOption = option("key_env", TEXT, "the environment variable that holds the key");
const KEY: &[NativeOption] = &[KEY_FILE, KEY_ENV];
const LEVEL: &[NativeOption] =
    &[option("level", I64, "1 (fastest) to 9 (smallest); zstd has levels up to 19, lz4 has no levels")];
const JWT: &[NativeOption] = &[
    KEY_FILE,
    KEY_ENV,
    option("algorithm", TEXT, "`HS256`, `RS256` or `ES256`; tokens with another algorithm are not valid"),
    option("issuer", TEXT, "the required `iss`"),
    option("audience", TEXT, "a value that `aud` must contain"),
    option("leeway", Type::Interval, "the allowed clock difference; 0 s by default"),
];

use Native as N;
use Param as P;

/// Every native function, sorted by name.
pub const NATIVES: &[Info] = &[
    Info::new(
        N::Address,
        "address",
        &[P::Text],
        Type::IpAddr,
        "the IP address in `10.0.0.1`, `10.0.0.1:80`, `2001:db8::1` or `[2001:db8::1]:80`; the IPv4 address \
         in `::ffff:10.0.0.1`; NULL for other texts",
    )
    .or_null()
    .costs(45, 0),
    Info::new(
        N::Aes256GcmOpen,
        "aes_256_gcm_open",
        &[P::Bytes],
        BYTES,
        "the plaintext of a result of `aes_256_gcm_seal` under the same key",
    )
    .fails("the argument was not sealed under this key")
    .inverts(N::Aes256GcmSeal)
    .keyed(KEY)
    .costs(1200, 330),
    Info::new(
        N::Aes256GcmSeal,
        "aes_256_gcm_seal",
        &[P::Data],
        BYTES,
        "the nonce, the ciphertext of XAES-256-GCM and the tag: 40 bytes more than the argument",
    )
    .fails(LONGER)
    .effect(Effect::Nonce)
    .keyed(KEY)
    .costs(350, 530),
    Info::new(
        N::Base64,
        "base64",
        &[P::Data],
        TEXT,
        "the argument in Base64 (RFC 4648 section 4), with padding",
    )
    .fails(LONGER)
    .costs(56, 540),
    Info::new(
        N::Base64Url,
        "base64url",
        &[P::Data],
        TEXT,
        "the argument in URL-safe Base64 (RFC 4648 section 5), without padding",
    )
    .fails(LONGER)
    .costs(33, 530),
    Info::new(
        N::ChaCha20Poly1305Open,
        "chacha20_poly1305_open",
        &[P::Bytes],
        BYTES,
        "the plaintext of a result of `chacha20_poly1305_seal` under the same key",
    )
    .fails("the argument was not sealed under this key")
    .inverts(N::ChaCha20Poly1305Seal)
    .keyed(KEY)
    .costs(2300, 1100),
    Info::new(
        N::ChaCha20Poly1305Seal,
        "chacha20_poly1305_seal",
        &[P::Data],
        BYTES,
        "the nonce, the ciphertext of XChaCha20-Poly1305 and the tag: 40 bytes more than the argument",
    )
    .fails(LONGER)
    .effect(Effect::Nonce)
    .keyed(KEY)
    .costs(2200, 1100),
    Info::new(
        N::DnsName,
        "dns_name",
        &[P::Bytes],
        TEXT,
        "a DNS name from its labels (RFC 1035 section 3.1), in lower case and without the last dot: \
         `www.example.com`; a byte that is not printable ASCII is `\\DDD`, a dot in a label `\\.`; NULL if \
         the name is incomplete or malformed",
    )
    .or_null()
    .costs(50, 3000),
    Info::new(
        N::GroupMac,
        "group_mac",
        &[P::Address],
        Type::Mac,
        "the MAC address of an IP multicast group (RFC 1112 section 6.4, RFC 2464 section 7); NULL for \
         other addresses",
    )
    .or_null()
    .costs(10, 0),
    Info::new(
        N::Gunzip,
        "gunzip",
        &[P::Bytes],
        BYTES,
        "the argument decompressed from the gzip format (RFC 1952)",
    )
    .fails("the argument is damaged, or the result would be longer than 4 MiB")
    .inverts(N::Gzip)
    .costs(500, 1900),
    Info::new(N::Gzip, "gzip", &[P::Data], BYTES, "compressed, in the gzip format (RFC 1952)")
        .fails(LONGER)
        .options(LEVEL)
        .costs(7600, 34_000),
    Info::new(
        N::Hex,
        "hex",
        &[P::Data],
        TEXT,
        "the argument in hexadecimal: two digits per byte, in lower case",
    )
    .fails(LONGER)
    .costs(20, 1600),
    Info::new(
        N::HmacSha256,
        "hmac_sha256",
        &[P::Data],
        BYTES,
        "the 32 bytes of the message authentication code HMAC-SHA-256 (RFC 2104)",
    )
    .keyed(KEY)
    .costs(310, 1000),
    Info::new(
        N::JsonGet,
        "json_get",
        &[P::Data, P::Pointer],
        TEXT,
        "the value at a JSON pointer (RFC 6901): a string as plain text, any other value as JSON; NULL if \
         the value is missing or `null`",
    )
    .or_null()
    .fails("the argument is not JSON (RFC 8259)")
    .costs(43, 5400),
    Info::new(
        N::JsonSet,
        "json_set",
        &[P::Data, P::Pointer, P::Scalar],
        TEXT,
        "the JSON with this value at a JSON pointer: in place of what is there, or as a new member or last item of \
         what is around it",
    )
    .fails("the argument is not JSON, or the parent of the pointer is missing")
    .costs(260, 4300),
    Info::new(
        N::JwtVerify,
        "jwt_verify",
        &[P::Text],
        TEXT,
        "the claims of a JSON Web Token (RFC 7519) as JSON; NULL if its signature, `exp`, `nbf`, `iss` or \
         `aud` is not valid now",
    )
    .or_null()
    .effect(Effect::Clock)
    .keyed(JWT)
    .costs(60_000, 2000),
    Info::new(N::Lz4, "lz4", &[P::Data], BYTES, "compressed, in the LZ4 frame format")
        .fails(LONGER)
        .costs(260, 2300),
    Info::new(
        N::MaglevSlot,
        "maglev_slot",
        &[P::Data, P::Int],
        I64,
        "a slot from 0 to n - 1, from the Maglev table for n (NSDI 2016, section 3.4); few keys move when n \
         changes",
    )
    .fails("n is not 1 to 1024")
    .costs(36, 37),
    Info::new(
        N::MatchesAny,
        "matches_any",
        &[P::Data, P::Constants],
        Type::Bool,
        "whether the argument contains one of the texts; one search covers all of them",
    )
    .costs(43, 91),
    Info::new(
        N::MssAtMost,
        "mss_at_most",
        &[P::Data, P::Int],
        BYTES,
        "TCP options with the maximum segment size (RFC 9293 section 3.7.1) lowered to the second argument \
         if it is larger",
    )
    .costs(20, 0),
    Info::new(
        N::Network,
        "network",
        &[P::Address, P::Int],
        Type::Cidr,
        "the network with this prefix length that contains the address: 10.1.2.0/24 for 10.1.2.3 and 24; a \
         longer prefix counts as the whole address",
    )
    .fails("the prefix length is negative")
    .costs(12, 0),
    Info::new(
        N::RandomHex,
        "random_hex",
        &[P::Int],
        TEXT,
        "this number of random bytes in hexadecimal, the same in each replay; not for secrets",
    )
    .fails("the number is not 0 to 1024")
    .effect(Effect::Random)
    .costs(20, 1600),
    Info::new(
        N::RegexCapture,
        "regex_capture",
        &[P::Text, P::Pattern, P::Int],
        TEXT,
        "the n-th group of the first match, 0 for the whole match; NULL if there is none",
    )
    .or_null()
    .costs(150, 36),
    Info::new(
        N::RegexMatch,
        "regex_match",
        &[P::Text, P::Pattern],
        Type::Bool,
        "whether the regular expression matches a part of the argument; takes linear time",
    )
    .costs(64, 53),
    Info::new(
        N::RegexReplace,
        "regex_replace",
        &[P::Text, P::Pattern, P::Constant],
        TEXT,
        "the argument with each match replaced by the text, where `$1` or `${name}` is a group and `$$` is \
         `$`",
    )
    .fails(LONGER)
    .costs(130, 70),
    Info::new(N::Sha256, "sha256", &[P::Data], BYTES, "the SHA-256 hash (FIPS 180-4): 32 bytes")
        .costs(180, 2600),
    Info::new(
        N::SolicitedNode,
        "solicited_node",
        &[P::Address],
        Type::IpAddr,
        "the solicited-node multicast address of an IPv6 address (RFC 4291 section 2.7.1); NULL for IPv4",
    )
    .or_null()
    .costs(10, 0),
    Info::new(
        N::Unbase64,
        "unbase64",
        &[P::Data],
        BYTES,
        "the argument decoded from Base64 (RFC 4648 section 4); padding is required",
    )
    .fails("the argument is not Base64")
    .inverts(N::Base64)
    .costs(78, 900),
    Info::new(
        N::Unbase64Url,
        "unbase64url",
        &[P::Data],
        BYTES,
        "the argument decoded from URL-safe Base64 (RFC 4648 section 5), without padding",
    )
    .fails("the argument is not URL-safe Base64")
    .inverts(N::Base64Url)
    .costs(45, 680),
    Info::new(N::Unhex, "unhex", &[P::Data], BYTES, "the argument decoded from hexadecimal")
        .fails("a character is not a hexadecimal digit, or the number of digits is odd")
        .inverts(N::Hex)
        .costs(41, 2200),
    Info::new(N::Unlz4, "unlz4", &[P::Bytes], BYTES, "the argument decompressed from the LZ4 frame format")
        .fails("the argument is damaged, or the result would be longer than 4 MiB")
        .inverts(N::Lz4)
        .costs(2000, 580),
    Info::new(
        N::Unzstd,
        "unzstd",
        &[P::Bytes],
        BYTES,
        "the argument decompressed from the Zstandard format (RFC 8878)",
    )
    .fails("the argument is damaged, or the result would be longer than 4 MiB")
    .inverts(N::Zstd)
    .costs(200, 1100),
    Info::new(N::Utf8, "utf8", &[P::Bytes], TEXT, "the bytes as TEXT")
        .fails("the bytes are not UTF-8")
        .costs(26, 100),
    Info::new(N::Xxh3, "xxh3", &[P::Data], Type::Uint(64), "the 64-bit hash XXH3 with seed 0").costs(31, 54),
    Info::new(N::Zstd, "zstd", &[P::Data], BYTES, "compressed, in the Zstandard format (RFC 8878)")
        .fails(LONGER)
        .options(LEVEL)
        .costs(1600, 6600),
];

impl Native {
    /// The entry in [`NATIVES`].
    ///
    /// # Panics
    /// Never: a test checks that the table is complete.
    pub fn info(self) -> &'static Info {
        NATIVES.iter().find(|info| info.native == self).expect("the table has all native functions")
    }

    /// Its name in programs.
    pub fn name(self) -> &'static str {
        self.info().name
    }
}

impl FromStr for Native {
    type Err = UnknownNative;

    fn from_str(name: &str) -> Result<Self, UnknownNative> {
        NATIVES.iter().find(|info| info.name == name).map(|info| info.native).ok_or(UnknownNative)
    }
}

/// There is no native function of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownNative;

impl fmt::Display for UnknownNative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no native function of this name")
    }
}

impl core::error::Error for UnknownNative {}

/// A declared native function with everything that is known before the program runs.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeDecl {
    /// The name in the program: that of its declaration, or its own.
    pub name: String,
    /// The function.
    pub native: Native,
    /// The values of its parameters that are [constant](Param::is_constant), in order.
    pub constants: Vec<String>,
    /// The options of its declaration. They name the location of a key, never the key.
    pub options: Vec<(String, Value)>,
    /// Identifies the call of a function whose effect is not [`Effect::Pure`]: the same for the same call of the same
    /// instance in every version.
    pub site: u64,
    /// The cost of a call, from its declaration or from the table.
    pub cost: NativeCost,
}

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Arg<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Bytes(&'a [u8]),
}

impl<'a> Arg<'a> {
    /// The bytes; empty for another type.
    pub fn bytes(self) -> &'a [u8] {
        if let Self::Bytes(bytes) = self { bytes } else { &[] }
    }

    /// The number; 0 for another type.
    pub fn int(self) -> i64 {
        if let Self::Int(n) = self { n } else { 0 }
    }
}

/// A call: its arguments and the context of the pass.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The values of the parameters that are not constant, in order.
    pub args: &'a [Arg<'a>],
    /// `now()`.
    pub now: Time,
    /// The base of the random draws of the message.
    pub rand: u64,
}

impl<'a> Call<'a> {
    /// The bytes of the first argument.
    pub fn data(&self) -> &'a [u8] {
        self.args.first().map_or(&[], |arg| arg.bytes())
    }
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// The bytes in the output buffer.
    Bytes,
    /// NULL.
    Null,
    /// The error value `function failed`.
    Failed,
}

/// A native function that is ready to be called, from any number of workers.
///
/// State that it keeps between calls is not observable, except for the nonces of [`Effect::Nonce`].
pub trait Prepared: Send + Sync + fmt::Debug {
    /// Computes the function. `out` is empty on entry and takes the bytes of the result, at most [`Info::bytes_max`].
    /// Its content is valid only if the call returns [`Ended::Bytes`].
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended;
}

/// Why a function cannot be prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrepareError {
    /// The key is missing, or has the wrong form or length. The text names the key, without its content.
    Key(String),
    /// A constant or an option is invalid.
    Constant(String),
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Key(why) | Self::Constant(why)) = self;
        f.write_str(why)
    }
}

impl core::error::Error for PrepareError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_table_sorted_and_complete() {
        // A missing function would panic on look-up; a duplicate would have two meanings.
        assert!(NATIVES.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert_eq!(NATIVES.len(), Native::JwtVerify as usize + 1, "as many as the enumeration has");
        for info in NATIVES {
            assert_eq!(info.native.info().name, info.name);
            assert_eq!(info.name.parse(), Ok(info.native));
            let values = info.params.iter().filter(|param| !param.is_constant()).count();
            assert!(values <= NATIVE_ARGS_MAX, "{}", info.name);
        }
    }

    #[test]
    fn native_inverses_are_mutual() {
        // With a wrong inverse, the planner would reorder what it must not.
        for info in NATIVES {
            let Some(of) = info.inverse else { continue };
            let of = of.info();
            assert!(matches!(info.params, [P::Data | P::Bytes]), "{}", info.name);
            assert_eq!(info.needs_key, of.needs_key, "{}", info.name);
            assert_eq!(info.result, BYTES, "{}", info.name);
        }
    }

    #[test]
    fn signature_prints_as_call() {
        assert_eq!(Native::Gzip.info().signature(), "gzip(TEXT or BYTES) BYTES");
        assert_eq!(Native::JsonGet.info().signature(), "json_get(TEXT or BYTES, 'pointer') TEXT?");
    }
}
