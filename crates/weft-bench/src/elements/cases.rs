//! The measured chains: each library element in a chain of its own, and the chain of the ADN paper.

use crate::machine::accepted;
use std::fmt::Write as _;
use weft_control::check::Accepted;

use weft_ir::program::ChainProgram;
use weft_lang::source::SourceMap;
use weft_native::by_hand::{Compressor, Sealer};

use super::rig::{Payload, STRANGER, USERS};
use crate::twins;
use weft_control::library;

const PROTO: &str = include_str!("bench.proto");
const HEAD: &str = "CREATE TYPE bench FROM PROTO 'bench.proto';
CREATE LISTENER front ON tcp '127.0.0.1:1';
CREATE CLUSTER back TO '10.0.0.1:7000', '10.0.0.2:7000', '10.0.0.3:7000', '10.0.0.4:7000';
CREATE CLUSTER other TO '10.0.0.9:7000';
";

/// A measured chain.
pub(super) struct Case {
    /// The name of the element, or of the chain.
    pub(super) name: &'static str,
    /// The library files of the elements.
    files: &'static [&'static str],
    /// Elements that are not in the library.
    text: &'static str,
    /// The stages of the chain.
    stages: &'static str,
    /// Rows for its tables.
    rows: fn() -> String,
    /// The payload of its messages.
    pub(super) payload: Payload,
    /// The handwritten chain.
    pub(super) twin: twins::Make,
    /// The source text of the twin.
    twin_text: &'static [&'static str],
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "(empty)",
        files: &[],
        text: "CREATE ELEMENT empty ON rpc AS ON REQUEST FORWARD; END;",
        stages: "empty",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::EMPTY,
        twin_text: &[],
    },
    Case {
        name: "logging",
        files: &["library/elements/logging.weft"],
        text: "",
        stages: "logging",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::LOGGING,
        twin_text: &[include_str!("../twins/logging.rs")],
    },
    Case {
        name: "acl",
        files: &["library/elements/acl.weft"],
        text: "",
        stages: "acl",
        rows: permissions,
        payload: String::into_bytes,
        twin: twins::ACL,
        twin_text: &[include_str!("../twins/acl.rs")],
    },
    Case {
        name: "fault",
        files: &["library/elements/fault.weft"],
        text: "",
        stages: FAULT,
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::FAULT,
        twin_text: &[include_str!("../twins/fault.rs")],
    },
    Case {
        name: "token_bucket",
        files: &["library/elements/token_bucket.weft"],
        text: "",
        stages: "token_bucket (rate = 1000, burst = 10)",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::TOKEN_BUCKET,
        twin_text: &[include_str!("../twins/token_bucket.rs")],
    },
    Case {
        name: "metrics",
        files: &["library/elements/metrics.weft"],
        text: "",
        stages: "metrics",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::METRICS,
        twin_text: &[include_str!("../twins/metrics.rs")],
    },
    Case {
        name: "mutation",
        files: &["library/elements/mutation.weft"],
        text: "",
        stages: "mutation (value = 'blue', prefix = 'eu-', target := tenant)",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::MUTATION,
        twin_text: &[include_str!("../twins/mutation.rs")],
    },
    Case {
        name: "shard_lb",
        files: &["library/elements/shard_lb.weft"],
        text: "",
        stages: "shard_lb (shards = 4)",
        rows: replicas,
        payload: String::into_bytes,
        twin: twins::SHARD_LB,
        twin_text: &[include_str!("../twins/shard_lb.rs")],
    },
    Case {
        name: "header_acl",
        files: &["library/elements/header_acl.weft"],
        text: "",
        stages: "header_acl (token := header.\"x-token\")",
        rows: tokens,
        payload: String::into_bytes,
        twin: twins::HEADER_ACL,
        twin_text: &[include_str!("../twins/header_acl.rs")],
    },
    Case {
        name: "bandwidth_limit",
        files: &["library/elements/bandwidth_limit.weft"],
        text: "",
        stages: "bandwidth_limit (rate = 4e11, burst = 1e6)",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::BANDWIDTH_LIMIT,
        twin_text: &[include_str!("../twins/bandwidth_limit.rs")],
    },
    Case {
        name: "cache",
        files: &["library/elements/cache.weft"],
        text: "",
        stages: "cache (ttl = '1 ms', shared = TRUE, key := tenant)",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::CACHE,
        twin_text: &[include_str!("../twins/cache.rs")],
    },
    Case {
        name: "circuit_breaker",
        files: &["library/elements/circuit_breaker.weft"],
        text: "",
        stages: "circuit_breaker (failures = 1, pause = '20 us')",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::CIRCUIT_BREAKER,
        twin_text: &[include_str!("../twins/circuit_breaker.rs")],
    },
    Case {
        name: "admission_control",
        files: &["library/elements/admission_control.weft"],
        text: "",
        stages: "admission_control (k = 1)",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::ADMISSION_CONTROL,
        twin_text: &[include_str!("../twins/admission_control.rs")],
    },
    Case {
        name: "sticky_lb",
        files: &["library/elements/sticky_lb.weft"],
        text: "",
        stages: "sticky_lb (session := tenant)",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::STICKY_LB,
        twin_text: &[include_str!("../twins/sticky_lb.rs")],
    },
    Case {
        name: "hash_lb",
        files: &["library/elements/hash_lb.weft"],
        text: "",
        stages: "hash_lb (key := tenant)",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::HASH_LB,
        twin_text: &[include_str!("../twins/hash_lb.rs")],
    },
    Case {
        name: "round_robin_lb",
        files: &["library/elements/round_robin_lb.weft"],
        text: "",
        stages: "round_robin_lb",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::ROUND_ROBIN_LB,
        twin_text: &[include_str!("../twins/round_robin_lb.rs")],
    },
    Case {
        name: "random_lb",
        files: &["library/elements/random_lb.weft"],
        text: "",
        stages: "random_lb",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::RANDOM_LB,
        twin_text: &[include_str!("../twins/random_lb.rs")],
    },
    Case {
        name: "least_loaded_lb",
        files: &["library/elements/least_loaded_lb.weft"],
        text: "",
        stages: "least_loaded_lb",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::LEAST_LOADED_LB,
        twin_text: &[include_str!("../twins/least_loaded_lb.rs")],
    },
    Case {
        name: "ab_header",
        files: &["library/elements/ab_header.weft"],
        text: "",
        stages: "ab_header (value = 'u7', target = 'other', variant := header.\"x-variant\")",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::AB_HEADER,
        twin_text: &[include_str!("../twins/ab_header.rs")],
    },
    Case {
        name: "ab_random",
        files: &["library/elements/ab_random.weft"],
        text: "",
        stages: "ab_random (percent = 50, target = 'other')",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::AB_RANDOM,
        twin_text: &[include_str!("../twins/ab_random.rs")],
    },
    Case {
        name: "traffic_mirror",
        files: &["library/elements/traffic_mirror.weft"],
        text: "",
        stages: "traffic_mirror (percent = 10, target = 'other')",
        rows: String::new,
        payload: String::into_bytes,
        twin: twins::TRAFFIC_MIRROR,
        twin_text: &[include_str!("../twins/traffic_mirror.rs")],
    },
    Case {
        name: "compress",
        files: &["library/elements/compress.weft"],
        text: "",
        stages: "compress (by = zstd, data := body)",
        rows: String::new,
        payload: orders,
        twin: twins::COMPRESS,
        twin_text: &[include_str!("../twins/compress.rs")],
    },
    Case {
        name: "decompress",
        files: &["library/elements/decompress.weft"],
        text: "",
        stages: "decompress (by = unzstd, data := body)",
        rows: String::new,
        payload: compressed,
        twin: twins::DECOMPRESS,
        twin_text: &[include_str!("../twins/decompress.rs")],
    },
    Case {
        name: "encrypt",
        files: &["library/elements/encrypt.weft"],
        text: SEAL,
        stages: "encrypt (seal = seal, data := body)",
        rows: String::new,
        payload: orders,
        twin: twins::ENCRYPT,
        twin_text: &[include_str!("../twins/encrypt.rs")],
    },
    Case {
        name: "decrypt",
        files: &["library/elements/decrypt.weft"],
        text: OPEN,
        stages: "decrypt (open = open, data := body)",
        rows: String::new,
        payload: sealed,
        twin: twins::DECRYPT,
        twin_text: &[include_str!("../twins/decrypt.rs")],
    },
    Case {
        name: "ADN chain",
        files: &["library/elements/logging.weft", "library/elements/acl.weft", "library/elements/fault.weft"],
        text: "",
        stages: ADN,
        rows: permissions,
        payload: String::into_bytes,
        twin: twins::ADN,
        twin_text: &[
            include_str!("../twins/logging.rs"),
            include_str!("../twins/acl.rs"),
            include_str!("../twins/fault.rs"),
        ],
    },
];

const SEAL: &str =
    "CREATE FUNCTION seal (BYTES) RETURNS BYTES AS NATIVE 'aes_256_gcm_seal' WITH (key_env = 'BENCH_KEY');";
const OPEN: &str =
    "CREATE FUNCTION open (BYTES) RETURNS BYTES AS NATIVE 'aes_256_gcm_open' WITH (key_env = 'BENCH_KEY');";
const FAULT: &str = "fault (abort_percent = 1, delay_percent = 2, delay = '3 ms')";
const ADN: &str = "logging -> acl -> fault (abort_percent = 1, delay_percent = 2, delay = '3 ms')";

impl Case {
    /// The lowered chain.
    ///
    /// # Errors
    /// The library lacks the element, or it does not compile.
    pub(super) fn program(&self) -> Result<ChainProgram, String> {
        let named = |why: String| format!("{}: {why}", self.name);
        let (accepted, _) = network(self.files, self.text, self.stages, &(self.rows)()).map_err(named)?;
        Ok(accepted.lowered.chains.into_iter().next().expect("the network has a chain").program)
    }

    /// Lines of code of the element and of its twin, without comments and blank lines.
    pub(super) fn lines(&self) -> [f64; 2] {
        let element = self.files.iter().filter_map(|file| library::text(file));
        let count = |texts: Vec<&str>, comment: &str| {
            let lines = texts.iter().flat_map(|text| code(text).lines());
            lines.filter(|line| !line.trim().is_empty() && !line.trim().starts_with(comment)).count()
        };
        [count(element.collect(), "--") as f64, count(self.twin_text.to_vec(), "//") as f64]
    }
}

/// A network with a chain `bench` of these stages, with elements from these library files and from `text`, and rows for
/// its tables.
///
/// # Errors
/// The library lacks the elements, or they are wrong.
pub(super) fn network(
    files: &[&str],
    text: &str,
    stages: &str,
    rows: &str,
) -> Result<(Accepted, SourceMap), String> {
    let chain = "CREATE CHAIN bench ON front -> back METHOD 'weft.bench.Elements/*' AS";
    whole(files, &format!("{text}\n{chain} {stages}; END;\n{rows}"))
}

/// A network of this text, after the types, a listener and a cluster.
///
/// # Errors
/// As for [`network`].
pub(super) fn whole(files: &[&str], text: &str) -> Result<(Accepted, SourceMap), String> {
    let mut all = String::new();
    for file in files {
        let _ = writeln!(all, "IMPORT '{file}';");
    }
    let _ = write!(all, "{HEAD}{text}");
    accepted([("bench.weft", all), ("bench.proto", PROTO.to_owned())])
}

/// Orders of a user, some 250 bytes.
fn orders(name: String) -> Vec<u8> {
    let order = |n: usize| format!("order {} of {name} to shelf {}; ", n * 7919 % 10_000, n * 31 % 64);
    (0..8).map(order).collect::<String>().into_bytes()
}

/// Orders in the form of `compress`; those of strangers are truncated.
fn compressed(name: String) -> Vec<u8> {
    let is_damaged = name.starts_with(STRANGER);
    let mut made = Vec::new();
    let is_made = Compressor::default().compress(&orders(name), &mut made);
    is_made.expect("orders are short");
    made.truncate(made.len() - usize::from(is_damaged));
    made
}

/// Orders in the form of `encrypt`; those of strangers are altered.
fn sealed(name: String) -> Vec<u8> {
    let is_changed = name.starts_with(STRANGER);
    let mut made = Vec::new();
    Sealer::new(&twins::KEY, twins::ENTROPY).seal(&orders(name), &mut made).expect("orders are short");
    *made.last_mut().expect("there is a tag") ^= u8::from(is_changed);
    made
}

/// The code of a Rust file without its tests.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// All users may write except one in a hundred.
pub(super) fn permissions() -> String {
    let permission = |user| format!("('u{user}', '{}')", if user % 100 == 7 { 'R' } else { 'W' });
    let rows: Vec<String> = (0..USERS).map(permission).collect();
    format!("INSERT INTO bench.acl.ac_tab (user, permission) VALUES {};\n", rows.join(", "))
}

/// Valid tokens: those of all users but strangers.
fn tokens() -> String {
    let rows: Vec<String> = (0..USERS).map(|token| format!("('u{token}', 'front end')")).collect();
    format!("INSERT INTO bench.header_acl.allowed (token, role) VALUES {};\n", rows.join(", "))
}

pub(super) fn replicas() -> String {
    let rows: Vec<String> = (0..4).map(|slot| format!("({slot}, '10.0.0.{slot}:7000')")).collect();
    format!("INSERT INTO bench.shard_lb.replica (slot, endpoint) VALUES {};\n", rows.join(", "))
}
