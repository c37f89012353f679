//! `weft sim`, from outside.

use crate::node::{Folder, output, weft};

/// A trace that is broken would be played as if it were not, or the user would not be told where it is broken.
#[test]
fn a_broken_trace_is_told_by_file_and_line() {
    let folder = Folder::new();
    let run = |folder: &Folder, traces: &str| {
        let done = output(weft(folder).current_dir(&folder.0).args([
            "sim",
            "no-silver-bullet",
            "--quick",
            "--traces",
            traces,
        ]));
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, told) = run(&folder, ".");
    assert_eq!(status, Some(1));
    assert!(told.contains("no file whose name ends in .down or .up"), "{told}");
    folder.write("a.down", "1\n2\n3\n");
    folder.write("b.down", "1\n9\n3\n");
    let (status, told) = run(&folder, ".");
    assert_eq!(status, Some(1));
    assert!(told.contains("b.down: line 3: time goes back from 9 ms to 3 ms"), "{told}");
    let (status, _) = run(&folder, "absent");
    assert_eq!(status, Some(3));
}

/// The experiment would end without its figures, or with others the next time.
#[test]
fn the_experiment_gives_the_same_figures_again() {
    let folder = Folder::new();
    folder.write("link.down", &(1..=500).map(|n| format!("{}\n", 4 * n)).collect::<String>());
    let run = |jobs: &str| {
        let args = [
            "sim",
            "no-silver-bullet",
            "--quick",
            "--seeds",
            "1",
            "--traces",
            ".",
            "--json",
            "--svg",
            "out.svg",
            "--record",
            "out.rec",
        ];
        let done = output(weft(&folder).current_dir(&folder.0).args(args).args(["--jobs", jobs]));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut told: serde_json::Value = serde_json::from_slice(&done.stdout).expect("it is JSON");
        told["seconds"] = serde_json::Value::Null;
        told
    };
    let told = run("2");
    // Eight objectives, four configurations.
    assert_eq!(told["rows"].as_array().expect("rows").len(), 32);
    assert_eq!(told["conditions"], "1 seed, 1/5 of the time, NewReno as in the paper, LTE links of 1 trace");
    let recorded = || std::fs::read(folder.0.join("out.rec")).expect("it is written");
    let first = recorded();
    assert_eq!(told, run("1"));
    assert!(first == recorded(), "the recordings differ");
    let shown =
        output(weft(&folder).current_dir(&folder.0).args(["link", "show", "out.rec", "--link", "1b"]));
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(
        shown.starts_with("link 1b  objective_aware  15 Mbit/s") && shown.contains("packets that wait"),
        "{shown}"
    );
}
