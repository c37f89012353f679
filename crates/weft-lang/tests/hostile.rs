//! Hostile input: it is accepted, or rejected with a diagnostic, in linear time.
//!
//! The time limits are for an unoptimised build on a busy machine, about twenty times the time on an idle one.
//! Quadratic algorithms take minutes at these sizes.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the tests measure how long a check takes"
)]

use std::time::{Duration, Instant};

use weft_core::limits::COMPILE_STACK_BYTES;
use weft_lang::check::analyse;
use weft_lang::diagnostic::{Diagnostic, RenderOptions, render_all, to_json};
use weft_lang::editor::Program;
use weft_lang::editor::complete::complete;
use weft_lang::source::{FileId, SOURCE_BYTES_MAX};

mod support;
use support::Texts;
#[path = "support/large.rs"]
mod large;

/// The maximum time of checking one program.
const BOUND: Duration = Duration::from_secs(20);

/// Things of each kind.
const N: usize = 100_000;

/// Checks, formats and renders a text; returns the codes of the diagnostics.
fn check(what: &str, text: &str) -> Vec<&'static str> {
    check_files(what, &[("a.weft".to_owned(), text.to_owned())])
}

fn check_files(what: &str, files: &[(String, String)]) -> Vec<&'static str> {
    let mut texts = Texts::of(files);
    within(what, || {
        let (network, diagnostics, sources) = weft_lang::check("a.weft", &mut texts);
        assert!(
            network.is_some() || diagnostics.iter().any(Diagnostic::is_error),
            "{what}: a refusal has a reason"
        );
        let shown = render_all(&diagnostics, &sources, RenderOptions::default()).len();
        let data = to_json(&diagnostics, &sources).len();
        assert!(shown < 1 << 20 && data < 1 << 20, "{what}: {shown} bytes are no message to a person");
        if sources.files().next().is_some() {
            let _ = weft_lang::format::format(&sources, FileId(0));
        }
        diagnostics.iter().map(|diagnostic| diagnostic.code.0).collect()
    })
}

fn within<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    let took = begun.elapsed();
    assert!(took < BOUND, "{what}: {took:?}");
    done
}

fn list(n: usize, separator: &str, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(separator)
}

fn element(decls: &str, body: &str) -> String {
    format!("CREATE ELEMENT e (p I64 = 0) ON rpc (user TEXT, n I64) AS\n{decls}\nON REQUEST\n{body}\nEND;\n")
}

#[test]
fn many_names_check_in_linear_time() {
    check("elements", &list(N / 4, "\n", |n| format!("CREATE ELEMENT e{n} ON rpc AS END;")));
    check("replaced", &list(N / 4, "\n", |_| "CREATE OR REPLACE ELEMENT e ON rpc AS END;".to_owned()));
    check(
        "dropped",
        &list(N / 10, "\n", |n| format!("CREATE ELEMENT e{n} ON rpc AS END; DROP ELEMENT e{n};")),
    );
    check("listeners", &list(N / 4, "\n", |n| format!("CREATE LISTENER l{n} ON tcp '127.0.0.1:1';")));
    check("locals", &element("", &list(N, "\n", |n| format!("LET v{n} = n;"))));
    check(
        "chained locals",
        &element(
            "",
            &list(
                N,
                "\n",
                |n| if n == 0 { "LET v0 = n;".to_owned() } else { format!("LET v{n} = v{};", n - 1) },
            ),
        ),
    );
    check("variables", &element(&list(N / 4, "\n", |n| format!("VAR v{n} U64;")), "FORWARD;"));
    check(
        "columns",
        &format!(
            "CREATE TABLE t (k I64 PRIMARY KEY, {}) MAX 1 ROWS;",
            list(N, ", ", |n| format!("c{n} I64 = 0"))
        ),
    );
    check(
        "parameters",
        &format!("CREATE ELEMENT e ({}) ON rpc AS END;", list(N, ", ", |n| format!("c{n} I64 = 0"))),
    );
    check(
        "a list",
        &element(
            "",
            &format!("SELECT * FROM input WHERE n IN ({}) ELSE DROP;", list(N, ", ", |n| n.to_string())),
        ),
    );
    check(
        "arms",
        &element(
            "",
            &format!("LET x = CASE n {} ELSE 0 END;", list(N, " ", |n| format!("WHEN {n} THEN {n}"))),
        ),
    );
    check("arguments", &element("", &format!("LET x = least({});", list(N, ", ", |n| n.to_string()))));
    check("statements", &element("", &list(N, "\n", |_| "SET n = n + 1;".to_owned())));
    let head =
        "CREATE LISTENER l ON tcp 'a:1';\nCREATE CLUSTER k TO 'b:1';\nCREATE ELEMENT e ON rpc AS END;\n";
    check(
        "stages",
        &format!("{head}CREATE CHAIN c ON l -> k AS {}; END;", list(N, " -> ", |n| format!("e AS e{n}"))),
    );
    check(
        "routes",
        &format!(
            "{head}{}",
            list(N / 10, "\n", |n| format!("CREATE ROUTE r{n} ON l METHOD 'a/{n}' TO CLUSTER k;"))
        ),
    );
    check("endpoints", &format!("CREATE CLUSTER k TO {};", list(N / 10, ", ", |n| format!("\'b{n}:1\'"))));
}

/// If this fails, a recursion over a long list overflows the stack of a thread and ends the process.
#[test]
fn large_programs_hit_a_limit() {
    let mut faults = Vec::new();
    for large in large::ALL {
        let what = large.what;
        for n in [2, 100, 5_000, N / 5] {
            let text = (large.program)(n);
            let begun = Instant::now();
            let Some(errors) = on_stack(move || errors(&text)) else {
                faults.push(format!("{n} {what}: panics"));
                continue;
            };
            if begun.elapsed() > BOUND {
                faults.push(format!("{n} {what}: {:?}", begun.elapsed()));
            }
            // They are right but for their size.
            let others = errors.iter().find(|code| n == 2 || !LIMITS.contains(code));
            faults.extend(others.map(|code| format!("{n} {what}: {code}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The diagnostics of programs that are too large: files, nesting, height, errors, lists and names.
const LIMITS: [&str; 7] = ["W0001", "W0003", "W0004", "W0005", "W0314", "W0413", "W0604"];

/// Checks, formats and completes a text; returns the codes of the errors.
fn errors(text: &str) -> Vec<&'static str> {
    let mut texts = Texts::of(&[("a.weft".to_owned(), text.to_owned())]);
    let (_, diagnostics, sources) = weft_lang::check("a.weft", &mut texts);
    if sources.files().next().is_some() {
        let _ = weft_lang::format::format(&sources, FileId(0));
        let program = Program::new(analyse("a.weft", &mut texts));
        let _ = complete(&program, FileId(0), text.len() as u32);
    }
    diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).map(|d| d.code.0).collect()
}

/// Runs on a thread with the stack size that a node uses for such work; None if it panics.
fn on_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = std::thread::Builder::new().stack_size(COMPILE_STACK_BYTES);
    thread.spawn(work).expect("there are threads").join().ok()
}

#[test]
fn many_rank_paths_check_in_linear_time() {
    // Separate paths through a handler multiply: without a limit, a queue of a few lines would take hours.
    let queue = |body: &str| {
        format!(
            "CREATE QUEUE q AS\n  PARTITION BY flow();\n  ORDER PARTITIONS BY rank BITS 3;\n  \
             LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;\n  ON ACTIVATE\n{body}  SET rank = 8;\nEND;\n"
        )
    };
    let branches = list(N / 10, "", |n| format!("  IF p.len > {n} THEN SET p.class = {n}; END IF;\n"));
    let names = list(N / 10, "", |n| format!("  LET x{n} = p.len + {n};\n"));
    let arms = list(N / 10, " ", |n| format!("WHEN p.len > {n} THEN {n}"));
    let nested = (0..50).fold("p.dscp > 1".to_owned(), |inner, n| {
        format!("({inner} {} p.class > {n})", if n % 2 == 0 { "AND" } else { "OR" })
    });
    for (what, body) in [
        ("branches", branches),
        ("names", names),
        ("arms", format!("  SET rank = CASE {arms} ELSE 0 END;\n")),
        ("conditions in conditions", format!("  IF {nested} THEN SET rank = 9; END IF;\n")),
    ] {
        check(what, &queue(&body));
    }
}

#[test]
fn many_faults_check_in_linear_time() {
    check("unknown names", &element("", &list(N, "\n", |n| format!("SET w{n} = u{n};"))));
    check(
        "near names",
        &element(
            &list(N / 10, "\n", |n| format!("VAR v{n} U64;")),
            &list(N / 10, "\n", |n| format!("SET n = u{n};")),
        ),
    );
    check("same names", &list(N / 4, "\n", |_| "CREATE ELEMENT e ON rpc AS END;".to_owned()));
    check(
        "unknown elements",
        &format!(
            "CREATE LISTENER l ON tcp 'a:1';\nCREATE CLUSTER k TO 'b:1';\nCREATE CHAIN c ON l -> k AS {}; END;",
            list(N, " -> ", |n| format!("e{n}"))
        ),
    );
    check(
        "unknown types",
        &format!("CREATE ELEMENT e ({}) ON rpc AS END;", list(N, ", ", |n| format!("c{n} T{n}"))),
    );
    check("faults of syntax", &list(N, "\n", |_| "CREATE LISTENER;".to_owned()));
    check("unknown imports", &list(2000, "\n", |n| format!("IMPORT 'x{n}.weft';")));
}

#[test]
fn absurd_texts_are_rejected() {
    let faulty = |what: &str, text: &str, code: &str| {
        let codes = check(what, text);
        assert!(codes.contains(&code), "{what}: {codes:?}");
    };
    faulty("10 MB", &"x ".repeat(5 << 20), "W0001");
    faulty("a long line", &"a ".repeat(SOURCE_BYTES_MAX / 2), "W0105");
    faulty("a long word", &"a".repeat(SOURCE_BYTES_MAX), "W0105");
    faulty("a long text", &format!("IMPORT '{}';", "a".repeat(1 << 20)), "W0201");
    faulty("zeros", &"\0".repeat(1 << 20), "W0101");
    faulty("a zero", "CREATE LISTENER l ON tcp 'a\0b:1';", "W0409");
    faulty("huge numbers", &element("", &format!("LET x = {};", "9".repeat(1 << 16))), "W0104");
    faulty("a huge exponent", &element("", "LET x = 1e99999999999999999999;"), "W0104");
    faulty("a huge interval", &element("", "DELAY '99999999999999999999 h';"), "W0216");
    faulty("an escape", &element("", "LET x = \\n;"), "W0101");
    faulty(
        "nesting",
        &element("", &format!("LET x = {}n{};", "(".repeat(1 << 16), ")".repeat(1 << 16))),
        "W0003",
    );
    faulty("blocks", &element("", &"IF n = 1 THEN ".repeat(1 << 16)), "W0003");
    faulty("a sum", &element("", &format!("LET x = {};", list(1 << 16, " + ", |_| "n".to_owned()))), "W0004");
    faulty("no end", &"CREATE ELEMENT e ON rpc AS ".repeat(1 << 12), "W0110");
    faulty("a comment", &"/* ".repeat(1 << 18), "W0103");
}

#[test]
fn bom_and_crlf_change_nothing() {
    // A file from Windows must have the same meaning.
    let text = element("", "SET n = n + 1; -- so\n/* and\nso */ FORWARD;");
    assert_eq!(check("as it is", &text), [""; 0]);
    assert_eq!(check("with a mark of order", &format!("\u{feff}{text}")), [""; 0]);
    assert_eq!(check("with carriage returns", &text.replace('\n', "\r\n")), [""; 0]);
}

#[test]
fn import_cycle_terminates() {
    let ring = |n: usize, next: fn(usize, usize) -> usize| -> Vec<(String, String)> {
        let name = |at: usize| if at == 0 { "a.weft".to_owned() } else { format!("f{at}.weft") };
        (0..n).map(|at| (name(at), format!("IMPORT '{}';\nIMPORT 'a.weft';\n", name(next(at, n))))).collect()
    };
    assert!(check_files("a ring", &ring(50, |at, n| (at + 1) % n)).contains(&"W0202"));
    assert!(check_files("itself", &ring(1, |_, _| 0)).contains(&"W0202"));
    assert!(check_files("too deep a ring", &ring(2000, |at, n| (at + 1) % n)).contains(&"W0201"));
    // Each file imports two others: without a cache, that would be 2^60 files.
    let diamond: Vec<(String, String)> = (0..60)
        .map(|at| {
            let name = if at == 0 { "a.weft".to_owned() } else { format!("f{at}.weft") };
            let text = if at < 59 {
                format!("IMPORT 'f{0}.weft';\nIMPORT './f{0}.weft';\n", at + 1)
            } else {
                String::new()
            };
            (name, text)
        })
        .collect();
    assert_eq!(check_files("a diamond", &diamond), [""; 0]);
}
