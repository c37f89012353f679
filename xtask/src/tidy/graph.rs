//! The permitted dependencies between crates: a crate exists to forbid a dependency, to isolate a heavy one, or to be a
//! published interface.

use super::Finding;
use crate::workspace::Package;

/// The permitted dependencies of a crate, besides `weft-core`.
struct Rule {
    name: &'static str,
    /// Crates of this workspace, without the `weft-`.
    ours: &'static [&'static str],
    /// Crates of others; a `*` at the end matches any ending.
    third_party: &'static [&'static str],
}

/// The table of the design, section 7.
const RULES: &[Rule] = &[
    Rule { name: "weft-core", ours: &[], third_party: &[] },
    Rule { name: "weft-proto", ours: &[], third_party: &["flate2", "httparse", "rustls"] },
    Rule { name: "weft-lang", ours: &[], third_party: &["logos", "regex-syntax", "rowan"] },
    Rule { name: "weft-ir", ours: &[], third_party: &["indexmap", "memchr", "rustc-hash"] },
    Rule { name: "weft-opt", ours: &["lang", "ir"], third_party: &[] },
    Rule { name: "weft-jit", ours: &["ir"], third_party: &["cranelift-*", "memchr"] },
    Rule {
        name: "weft-native",
        ours: &[],
        third_party: &[
            "aes-gcm",
            "aho-corasick",
            "base64",
            "chacha20",
            "chacha20poly1305",
            "flate2",
            "hmac",
            "lz4_flex",
            "regex",
            "ring",
            "serde",
            "serde_json",
            "sha2",
            "twox-hash",
            "zeroize",
            "zstd-safe",
        ],
    },
    Rule { name: "weft-verilog", ours: &["ir"], third_party: &["rustc-hash"] },
    Rule { name: "weft-ebpf", ours: &["ir"], third_party: &["aya", "aya-obj"] },
    Rule { name: "weft-engine", ours: &["proto", "ir"], third_party: &["rustc-hash"] },
    Rule {
        name: "weft-io",
        ours: &["engine", "ir", "proto"],
        third_party: &["io-uring", "libc", "mio", "rustc-hash", "rustix"],
    },
    Rule { name: "weft-sim", ours: &["engine", "proto"], third_party: &[] },
    Rule { name: "weft-api", ours: &[], third_party: &["serde", "serde_json"] },
    Rule { name: "weft-import", ours: &[], third_party: &[] },
    Rule { name: "weft-schema", ours: &[], third_party: &[] },
    Rule { name: "weft-frame", ours: &[], third_party: &[] },
    Rule {
        name: "weft-control",
        ours: &["lang", "schema", "ir", "opt", "engine", "api"],
        third_party: &["serde", "serde_json"],
    },
    Rule {
        name: "weft-bench",
        ours: &["proto", "lang", "ir", "opt", "jit", "native", "engine", "io", "sim", "api", "control"],
        third_party: &["clap", "mio", "rustc-hash", "rustix", "serde_json", "ureq"],
    },
    Rule {
        name: "weft",
        ours: &[
            "proto", "lang", "ir", "opt", "jit", "verilog", "native", "ebpf", "engine", "io", "sim", "api",
            "import", "control", "bench",
        ],
        third_party: &[
            "ariadne",
            "axum",
            "clap",
            "clap_complete",
            "clap_mangen",
            "crossbeam-channel",
            "hdrhistogram",
            "hyper",
            "hyper-util",
            "libc",
            "lsp-server",
            "lsp-types",
            "rustix",
            "serde",
            "serde_json",
            "tokio",
            "ureq",
            "zeroize",
        ],
    },
    Rule {
        name: "weft-fuzz",
        ours: &["proto", "lang", "ir", "opt", "native", "engine", "import", "schema"],
        third_party: &["libfuzzer-sys"],
    },
    Rule { name: "xtask", ours: &[], third_party: &["serde_json"] },
    // A plain application: it may use any other crates, but none of ours.
    Rule { name: "shop", ours: &[], third_party: &["*"] },
];

/// Members outside of the product, which may not use even `weft-core`.
const OUTSIDERS: &[&str] = &["shop", "xtask"];

/// The permitted dependencies of tests, besides the crate's own and any crate of ours.
const DEV: &[&str] = &[
    "arbitrary",
    "bytes",
    "h2",
    "http",
    "insta",
    "proptest",
    "prost",
    "prost-reflect",
    "regex",
    "rustc-hash",
    "serde_json",
    "shop",
    "sqlparser",
    "tempfile",
    "tokio",
    "tokio-stream",
    "tonic",
];

/// Every dependency is in the table above, and every member has a row there.
pub(super) fn dependencies(packages: &[Package]) -> Vec<Finding> {
    packages.iter().flat_map(package).collect()
}

fn package(package: &Package) -> Vec<Finding> {
    let path = format!("{}/Cargo.toml", package.name);
    let Some(rule) = RULES.iter().find(|rule| rule.name == package.name) else {
        let text = "no row in the table of xtask/src/tidy/graph.rs says what this crate may depend on";
        return vec![Finding::new(&path, 0, text)];
    };
    package
        .dependencies
        .iter()
        .filter(|dependency| {
            !(allowed(rule, &dependency.name) || dependency.is_dev && allowed_in_tests(&dependency.name))
        })
        .map(|dependency| {
            let scope = if dependency.is_dev { "the tests of " } else { "" };
            Finding::new(&path, 0, format!("{scope}{} may not depend on `{}`", rule.name, dependency.name))
        })
        .collect()
}

fn allowed(rule: &Rule, dependency: &str) -> bool {
    match dependency.strip_prefix("weft-") {
        Some("core") => !OUTSIDERS.contains(&rule.name),
        Some(ours) => rule.ours.contains(&ours),
        None => dependency != "weft" && rule.third_party.iter().any(|pattern| matches(pattern, dependency)),
    }
}

fn allowed_in_tests(dependency: &str) -> bool {
    dependency.starts_with("weft-") || DEV.contains(&dependency)
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn check(name: &str, dependency: &str, is_dev: bool) -> Vec<String> {
        let dependencies = vec![Dependency { name: dependency.to_owned(), is_dev }];
        let package = Package { name: name.to_owned(), folder: "".into(), roots: vec![], dependencies };
        dependencies_text(&[package])
    }

    fn dependencies_text(packages: &[Package]) -> Vec<String> {
        dependencies(packages).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn listed_edge_is_accepted() {
        // If this failed, the rule would forbid the design itself.
        for (name, dependency) in [
            ("weft-engine", "weft-proto"),
            ("weft-proto", "weft-core"),
            ("weft-jit", "cranelift-module"),
            ("weft", "weft-jit"),
            ("shop", "tonic"),
        ] {
            assert_eq!(check(name, dependency, false), Vec::<String>::new());
        }
        assert_eq!(check("weft-engine", "weft-jit", true), Vec::<String>::new());
        assert_eq!(check("weft-lang", "insta", true), Vec::<String>::new());
    }

    #[test]
    fn unlisted_edge_is_refused() {
        // If this failed, an edge between crates could appear without a decision.
        assert_eq!(check("weft-engine", "weft-jit", false), ["weft-engine may not depend on `weft-jit`"]);
        assert_eq!(check("weft-core", "rustc-hash", false), ["weft-core may not depend on `rustc-hash`"]);
        assert_eq!(
            check("weft-core", "left-pad", true),
            ["the tests of weft-core may not depend on `left-pad`"]
        );
        assert_eq!(check("shop", "weft-core", false), ["shop may not depend on `weft-core`"]);
        assert_eq!(check("weft-new", "weft-core", false).len(), 1);
    }
}
