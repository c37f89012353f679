//! `weft compile`, from outside: queues as hardware modules.

use crate::node::{Folder, output, weft};
use std::path::Path;

/// A chip designer would get no module, or get one at the wrong path.
#[test]
fn queue_compiles_to_gates_or_refused() {
    let folder = Folder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (file, module) in
        [("examples/gates/codel.weft", "weft_codel_gates"), ("library/queues/codel.weft", "weft_codel")]
    {
        let made = output(
            weft(&folder)
                .arg("compile")
                .arg(root.join(file))
                .args(["--target", "verilog", "-o"])
                .arg(folder.0.join("gates")),
        );
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let printed = String::from_utf8_lossy(&made.stdout).into_owned();
        let text = std::fs::read_to_string(
            printed.split(':').next().map(|path| folder.0.join(path)).expect("a path"),
        );
        assert!(text.expect("it was written").contains(&format!("module {module} (")), "{printed}");
    }

    let two = folder.write(
        "two.weft",
        "CREATE QUEUE a AS\n  LIMIT 9 PACKETS ON OVERFLOW DROP TAIL;\n  VAR x F64;\n  ON ENQUEUE\n    \
         SET x = x * 0.5 + 1;\n    IF x > 3 THEN DROP; END IF;\n    ACCEPT;\nEND;\n\
         CREATE QUEUE b AS ORDER PACKETS BY number(p.slack); LIMIT 9 PACKETS ON OVERFLOW DROP TAIL; END;\n",
    );
    let compile = |args: &[&str]| {
        let ran = output(weft(&folder).arg("compile").arg(&two).args(["--target", "verilog"]).args(args));
        let printed = [ran.stderr, ran.stdout].map(|printed| String::from_utf8_lossy(&printed).into_owned());
        (ran.status.code(), printed.concat())
    };
    let (status, printed) = compile(&[]);
    assert!(
        status == Some(2) && printed.contains("has the queues a, b: say which with --queue"),
        "{printed}"
    );
    let (status, printed) = compile(&["--queue", "a"]);
    assert!(
        status == Some(1) && printed.contains("queue `a`, line 6: gates do not compute with floats"),
        "{printed}"
    );
    let library = |queue: &str, args: &[&str]| {
        let file = root.join(format!("library/queues/{queue}.weft"));
        let ran = output(weft(&folder).arg("compile").arg(file).args(["--target", "verilog"]).args(args));
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    let (status, printed) = library("pfabric", &[]);
    assert!(status == Some(1) && printed.contains("--entries 16 makes a tree of comparators"), "{printed}");
    // A truncated time would change the decisions of the gates.
    let (status, printed) = library("codel", &["--time-bits", "22"]);
    assert!(
        status == Some(1)
            && printed
                .contains("`target` is 5,000,000 ns, which 22 bits cannot hold; --time-bits 23 has room"),
        "{printed}"
    );
    let (status, printed) = library("codel", &["--time-bits", "27"]);
    assert_eq!(status, Some(0), "{printed}");
    let (status, printed) = compile(&["--queue", "b", "--entries", "16"]);
    assert!(status == Some(0) && printed.contains("module weft_b_tree16 ("), "{printed}");
}
