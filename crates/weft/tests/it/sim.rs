//! `weft sim`, from outside.

use crate::node::{Folder, output, weft};
use serde_json::Value;

/// Runs `weft sim run` with these arguments in the folder; returns both outputs and the status.
fn sim_run(folder: &Folder, args: &[&str]) -> (String, String, Option<i32>) {
    let done = output(weft(folder).current_dir(&folder.0).args(["sim", "run"]).args(args));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    (text(done.stdout), text(done.stderr), done.status.code())
}

/// The rows of a run as JSON.
fn rows(folder: &Folder, args: &[&str]) -> Vec<Value> {
    let (printed, faults, status) = sim_run(folder, &[args, &["--json"]].concat());
    assert_eq!(status, Some(0), "{faults}");
    let printed: Value = serde_json::from_str(&printed).expect("it is JSON");
    printed["rows"].as_array().expect("rows").clone()
}

/// The figure of a workload with a queue.
fn figure(rows: &[Value], workload: &str, queue: &str, of: &str) -> f64 {
    let is_it = |row: &&Value| row["workload"] == workload && row["queue"] == queue;
    rows.iter().find(is_it).and_then(|row| row.pointer(of)?.as_f64()).expect("it has that")
}

/// A broken trace would be played, or the user would not learn where it is broken.
#[test]
fn broken_trace_names_file_and_line() {
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
    let (status, printed) = run(&folder, ".");
    assert_eq!(status, Some(1));
    assert!(printed.contains("no file whose name ends in .down or .up"), "{printed}");
    folder.write("a.down", "1\n2\n3\n");
    folder.write("b.down", "1\n9\n3\n");
    let (status, printed) = run(&folder, ".");
    assert_eq!(status, Some(1));
    assert!(printed.contains("b.down: line 3: time goes back from 9 ms to 3 ms"), "{printed}");
    let (status, _) = run(&folder, "absent");
    assert_eq!(status, Some(3));
}

/// If this fails, the book has another table than `weft sim flood` prints. `UPDATE_EXPECT=1` writes it there.
#[test]
fn book_has_flood_figures() {
    let folder = Folder::new();
    let done = output(weft(&folder).args(["sim", "flood"]));
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    let printed = String::from_utf8(done.stdout).expect("it is text");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/guide/simulating.md");
    let page = std::fs::read_to_string(path).expect("the book is there");
    let begins = "weft sim flood\n```\n\n```text\n";
    let at = page.find(begins).expect("the page has the command") + begins.len();
    let end = at + page[at..].find("```").expect("the block ends");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let page = format!("{}{printed}{}", &page[..at], &page[end..]);
        return std::fs::write(path, page).expect("it can be written");
    }
    assert_eq!(page[at..end], printed);
}

/// The experiment would lack its figures, or give others the next time.
#[test]
fn experiment_repeats_exactly() {
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
        done.stdout
    };
    let bytes = run("2");
    let printed: Value = serde_json::from_slice(&bytes).expect("it is JSON");
    // Eight objectives, four configurations.
    assert_eq!(printed["rows"].as_array().expect("rows").len(), 32);
    assert_eq!(
        printed["conditions"],
        "1 seed, 1/5 of the time, NewReno as in the paper, LTE links of 1 trace"
    );
    let recorded = || std::fs::read(folder.0.join("out.rec")).expect("it is written");
    let first = recorded();
    assert!(bytes == run("1"), "the same seed gives other bytes");
    assert!(first == recorded(), "the recordings differ");
    let shown =
        output(weft(&folder).current_dir(&folder.0).args(["link", "show", "out.rec", "--link", "1b"]));
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(
        shown.starts_with("link 1b  objective_aware  15 Mbit/s") && shown.contains("packets that wait"),
        "{shown}"
    );
}

/// Figures would not be reproducible, or would depend on the number of cores.
#[test]
fn sim_run_repeats_exactly() {
    let folder = Folder::new();
    let of = |topology: &str, jobs: &str, seed: &str| {
        let args = ["--topology", topology, "--for", "3s", "--seeds", "3", "--loss", "1%", "--reorder", "2%"];
        let more =
            ["--queue", "fq_codel", "--queue", "red", "--ecn", "--json", "--jobs", jobs, "--seed", seed];
        sim_run(&folder, &[&args[..], &more].concat())
    };
    for topology in ["dumbbell", "parking-lot", "fat-tree"] {
        let (printed, faults, status) = of(topology, "1", "7");
        assert_eq!((&*faults, status), ("", Some(0)));
        assert_eq!(of(topology, "4", "7").0, printed);
        assert_ne!(of(topology, "4", "8").0, printed);
    }
}

/// A policy would seem to have no effect.
#[test]
fn fair_queue_spares_short_flows() {
    let folder = Folder::new();
    let args = ["--queue", "fifo", "--queue", "fq_codel", "--for", "15s", "--seeds", "2"];
    let rows = rows(&folder, &[&args[..], &["--flows", "bulk=2,interactive,rpc=2"]].concat());
    let wait = |workload, queue| figure(&rows, workload, queue, "/wait_ms/p99");
    assert!(wait("interactive", "fq_codel") < wait("interactive", "fifo") / 2.0, "{rows:?}");
    assert!(wait("rpc", "fq_codel") < wait("rpc", "fifo") / 10.0, "{rows:?}");
    let done = |queue| figure(&rows, "rpc", queue, "/completion_ms/p99");
    assert!(done("fq_codel") < done("fifo") / 10.0, "{rows:?}");
}

/// Two commands would simulate different networks for the same request.
#[test]
fn sim_run_matches_experiment() {
    let folder = Folder::new();
    let experiment = ["sim", "no-silver-bullet", "--quick", "--seeds", "1", "--json"];
    let done = output(weft(&folder).current_dir(&folder.0).args(experiment));
    let printed: Value = serde_json::from_slice(&done.stdout).expect("it is JSON");
    let queue = "objective (packets = 1000000)";
    for (comparison, flows, seconds) in [("2b", "interactive=2", "50s"), ("1b", "bulk,web", "200s")] {
        let args =
            ["--queue", queue, "--flows", flows, "--for", seconds, "--seeds", "1", "--sender", "paper"];
        for row in rows(&folder, &args) {
            let is_it = |other: &&Value| {
                other["comparison"] == comparison
                    && other["configuration"] == "objective_aware"
                    && other["application"] == row["workload"]
            };
            let other =
                printed["rows"].as_array().and_then(|rows| rows.iter().find(is_it)).expect("it is there");
            let same = |mine: &Value, its: &Value, times: f64| {
                let ratio = mine.as_f64().expect("a number") / (its.as_f64().expect("a number") * times);
                assert!((ratio - 1.0).abs() < 1e-12, "{mine} {its}: {row}");
            };
            // The experiment reports the throughput of one flow.
            let n_flows = row["flows"].as_f64().expect("a number");
            same(&row["throughput_mbit_per_s"], &other["throughput_mbit_per_s"], n_flows);
            if comparison == "2b" {
                same(&row["rtt_ms"]["mean"], &other["rtt_ms"], 1.0);
                same(&row["wait_ms"]["mean"], &other["queue_ms"]["mean"], 1.0);
                assert_eq!(row["dropped"], other["dropped"]);
            }
        }
    }
}

/// A user would not learn what is wrong, or whose fault it is.
#[test]
fn invalid_sim_run_is_refused() {
    let folder = Folder::new();
    let queue =
        |name: &str| format!("CREATE QUEUE {name} AS\n  LIMIT 9 PACKETS ON OVERFLOW DROP TAIL;\nEND;\n");
    folder.write("two.weft", &(queue("first") + &queue("second")));
    folder.write("none.weft", "CREATE TABLE t (k TEXT(64) PRIMARY KEY) MAX 9 ROWS;\n");
    folder.write(
        "vlan.weft",
        "IMPORT 'library/protocols/all.weft';\nCREATE QUEUE by_vlan AS\n  PARTITION BY vlan.id HASH 16;\n  \
         LIMIT 9 PACKETS ON OVERFLOW DROP TAIL;\nEND;\n",
    );
    folder.write("broken.trace", "1\n9\n3\n");
    folder.write(
        "wanting.weft",
        "CREATE QUEUE w (n U32 = 5, t INTERVAL, k U32) AS\n  LIMIT n PACKETS ON OVERFLOW DROP TAIL;\nEND;\n",
    );
    let all: [&[&str]; 19] = [
        &["--queue", "fq_codell"],
        &["two.weft", "--queue", "frist"],
        &["--queue", "nothing_like_it"],
        &["--queue", "codel (targt = '5 ms')"],
        &["none.weft"],
        &["wanting.weft"],
        &["wanting.weft", "--queue", "w"],
        &["wanting.weft", "--queue", "w (k = 3)"],
        &["--queue", "wanting.weft"],
        &["vlan.weft"],
        &["absent.weft"],
        &["--rate", "fast"],
        &["--rate", "1mbit", "--lte"],
        &["--flows", "bulk=0"],
        &["--flows", "bulk=2,bulky=1"],
        &["--flows", "bulk=9000,rpc=9000"],
        &["--trace", "broken.trace"],
        &["--for", "2h"],
        &["--topology", "fat-tree", "--record", "out.rec"],
    ];
    let mut text = String::new();
    for args in all {
        let (printed, faults, status) = sim_run(&folder, args);
        assert_eq!(printed, "");
        text +=
            &format!("$ weft sim run {}\n{faults}exit status {}\n\n", args.join(" "), status.expect("one"));
    }
    insta::assert_snapshot!("sim_run_faults", text);
}

/// Another queue than the requested one would be measured.
#[test]
fn queues_resolve_by_name() {
    let folder = Folder::new();
    let queue = |name: &str, packets: u32| {
        format!(
            "CREATE QUEUE {name} (packets U32 = {packets}) AS\n  LIMIT packets PACKETS ON OVERFLOW DROP TAIL;\nEND;\n"
        )
    };
    folder.write("mine.weft", &(queue("codel", 1) + &queue("deep", 2000)));
    folder.write("wanting.weft", &queue("wanting", 1).replace(" = 1", ""));
    let short = ["--flows", "bulk", "--for", "5s", "--seeds", "1"];
    let of = |args: &[&str]| {
        let rows = rows(&folder, &[args, &short].concat());
        rows.iter().map(|row| (row["queue"].clone(), row["dropped"].clone())).collect::<Vec<_>>()
    };
    let last = of(&["mine.weft"]);
    assert_eq!(last[0].0, "deep");
    let all = of(&[
        "mine.weft",
        "--queue",
        "codel",
        "--queue",
        "deep",
        "--queue",
        "deep (packets = 1)",
        "--queue",
        "fifo",
        "--queue",
        "fifo (packets = 2000)",
    ]);
    assert_eq!(all.len(), 5);
    // The file's own codel holds one packet, as does `deep` with that argument.
    assert_eq!(all[0].1, all[2].1);
    assert_eq!(all[1], last[0]);
    assert_eq!(all[1].1, all[4].1);
    assert_ne!(all[3].1, all[4].1);
    assert_eq!(of(&[])[0].0, "fifo");
    // A file alone means its last queue, also with arguments.
    let files = of(&["--queue", "mine.weft", "--queue", "./mine.weft (packets = 1)"]);
    assert_eq!((&files[0].0, &files[0].1), (&Value::from("mine.weft"), &last[0].1));
    assert_eq!(files[1].1, all[0].1);
    // A queue that needs arguments is used with them.
    let missing_args =
        of(&["wanting.weft", "--queue", "wanting (packets = 1)", "--queue", "wanting.weft (packets = 2000)"]);
    assert_eq!((&missing_args[0].1, &missing_args[1].1), (&all[0].1, &last[0].1));
}

/// A mean over seeds would count one run several times.
#[test]
fn adjacent_seeds_are_independent() {
    let folder = Folder::new();
    folder.write(
        "half.weft",
        "CREATE QUEUE half AS LIMIT 5000 PACKETS ON OVERFLOW DROP TAIL;\n\
         ON ENQUEUE IF rand() < 0.02 THEN DROP; END IF; ACCEPT; END;\n",
    );
    let dropped = |seed: &str| -> Vec<u64> {
        let args = ["half.weft", "--flows", "bulk=1", "--for", "10s", "--seeds", "1", "--seed", seed];
        let (_, faults, status) = sim_run(&folder, &[&args[..], &["--record", "run.rec"]].concat());
        assert_eq!(status, Some(0), "{faults}");
        let printed =
            output(weft(&folder).current_dir(&folder.0).args(["link", "explain", "run.rec", "--json"]));
        let printed: Value = serde_json::from_slice(&printed.stdout).expect("it is JSON");
        let numbers = printed.as_array().expect("a list").iter().map(|one| one["packet"].as_u64());
        numbers.map(|number| number.expect("a number")).collect()
    };
    let [one, two] = ["1", "2"].map(dropped);
    assert!(one.len() > 5 && two.len() > 5, "{one:?} {two:?}");
    for shift in 0..10 {
        let same = one.iter().filter(|number| two.contains(&(**number + shift))).count();
        assert!(same <= one.len() / 4, "{same} drops are the same, {shift} later: {one:?} {two:?}");
    }
}

/// A picture or a recording would be missing, or would not match the figures.
#[test]
fn sim_run_is_plotted_and_recorded() {
    let folder = Folder::new();
    let args = [
        "--queue",
        "fq_codel",
        "--queue",
        "codel (target = '3 ms')",
        "--flows",
        "bulk=2,web,rpc,interactive",
    ];
    let more = ["--for", "5s", "--seeds", "2", "--svg", "out.svg", "--record", "out.rec"];
    let (printed, faults, status) = sim_run(&folder, &[&args[..], &more].concat());
    assert_eq!(status, Some(0), "{faults}");
    assert!(printed.starts_with("dumbbell, 15 Mbit/s, 75 ms, CUBIC, 2 seeds of 5 s\n\nflows "), "{printed}");
    assert!(faults.starts_with("simulated ") && faults.ends_with(" s\n"), "{faults}");
    let svg = std::fs::read_to_string(folder.0.join("out.svg")).expect("it is written");
    // Two bars for each of four workloads and each queue, plus the background and the legend.
    assert_eq!(svg.matches("<rect").count(), 2 * 4 * 2 + 2 + 1, "{svg}");
    let rows = rows(&folder, &[&args[..], &["--for", "5s", "--seeds", "1"]].concat());
    for link in ["fq_codel", "codel (target = '3 ms')"] {
        let mine = rows.iter().filter(|row| row["queue"] == link);
        let dropped: u64 = mine.map(|row| row["dropped"].as_u64().expect("a number")).sum();
        let shown =
            output(weft(&folder).current_dir(&folder.0).args(["link", "show", "out.rec", "--link", link]));
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.starts_with(&format!("link {link}  ")), "{shown}");
        assert!(dropped > 0 && shown.contains(&format!(" {dropped} dropped")), "{dropped} {shown}");
    }
}

/// The explanation of an overflow would have the queue's fill of another time, or omit what its lines read.
#[test]
fn overflow_drop_shows_queue_fill() {
    let folder = Folder::new();
    let queues = "CREATE QUEUE shallow AS LIMIT 3 PACKETS ON OVERFLOW DROP TAIL; END;
CREATE QUEUE fattest AS
  PARTITION BY p.flow HASH 16;
  LIMIT 20 PACKETS ON OVERFLOW DROP TAIL OF PARTITION ORDER BY bytes DESC;
  ON ENQUEUE
    IF partition.index > 99 OR p.flow < 0 THEN DROP; END IF;
    ACCEPT;
  ON DEQUEUE
    IF drops > 99 THEN DROP; END IF;
    ROTATE;
END;
";
    folder.write("mine.weft", queues);
    let args = ["mine.weft", "--queue", "shallow", "--queue", "fattest", "--flows", "bulk=3", "--seeds", "1"];
    let (_, faults, status) =
        sim_run(&folder, &[&args[..], &["--for", "5s", "--record", "out.rec"]].concat());
    assert_eq!(status, Some(0), "{faults}");
    let explain = |link: &str, args: &[&str]| {
        let mut explain = weft(&folder);
        explain.current_dir(&folder.0).args(["link", "explain", "out.rec", "--link", link]).args(args);
        String::from_utf8(output(&mut explain).stdout).expect("it is text")
    };
    for (link, limit) in [("shallow", 3), ("fattest", 20)] {
        let listed: Value = serde_json::from_str(&explain(link, &["--json"])).expect("data");
        let dropped = &listed[0];
        let by = &dropped["by"];
        assert!(by["held_packets"] == limit && by["limit_packets"] == limit, "{dropped}");
        assert!(by["held_bytes"].as_u64() > Some(0) && by["limit_bytes"].is_null(), "{dropped}");
        let printed = explain(link, &[&dropped["packet"].to_string()]);
        let held = format!("  the queue held {limit} packets and ");
        let line = printed.lines().find(|line| line.starts_with(&held)).expect("it says so");
        assert!(line.ends_with(&format!(" came; the limit is {limit} packets")), "{line}");
        assert_eq!(line.contains("when it came"), link == "shallow", "{line}");
    }
    let printed = explain("fattest", &["1"]);
    let value = |name: &str| {
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {printed}")).trim().to_owned()
    };
    let index: u32 = value("partition.index").parse().expect("a number");
    let (flow, hex) =
        value("p.flow").split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("both");
    assert!(index < 16 && flow.parse::<u32>().map(|flow| format!("({flow:08x})")) == Ok(hex), "{printed}");
    assert_eq!(
        (value("drops").as_str(), value("partition.bytes").as_str()),
        ("0 packets", "0 B"),
        "{printed}"
    );
}

/// A script would take a damaged recording for a fault of the machine.
#[test]
fn damaged_recording_is_input_fault() {
    let folder = Folder::new();
    folder.write("mine.weft", "CREATE QUEUE mine AS LIMIT 3 PACKETS ON OVERFLOW DROP TAIL; END;\n");
    let args = ["mine.weft", "--flows", "bulk=1", "--seeds", "1", "--for", "1s", "--record", "out.rec"];
    assert_eq!(sim_run(&folder, &args).2, Some(0));
    let text = std::fs::read_to_string(folder.0.join("out.rec")).expect("it is written");
    for damage in ["IMPORT 'gone.weft'; CREATE QUEUE mine", "CREATE QUEUE"] {
        let file = folder.write("damaged.rec", &text.replace("CREATE QUEUE mine", damage));
        let shown = output(weft(&folder).args(["link", "show"]).arg(&file));
        let printed = String::from_utf8_lossy(&shown.stderr).into_owned();
        assert!(shown.status.code() == Some(1) && printed.contains("error["), "{printed}");
    }
}

/// A truncated file would pass as a complete one, after a broken download or on a full disk.
#[test]
fn truncated_recording_is_shown() {
    let folder = Folder::new();
    folder.write("mine.weft", "CREATE QUEUE mine AS LIMIT 3 PACKETS ON OVERFLOW DROP TAIL; END;\n");
    let args = ["mine.weft", "--flows", "bulk=1", "--seeds", "1", "--for", "1s", "--record", "out.rec"];
    assert_eq!(sim_run(&folder, &args).2, Some(0));
    let text = std::fs::read_to_string(folder.0.join("out.rec")).expect("it is written");
    let run = |command: &str, args: &[&str], text: &str| {
        let file = folder.write("cut.rec", text);
        let done = output(weft(&folder).args(["link", command]).arg(&file).args(args));
        let text_of = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
        (text_of(done.stdout), text_of(done.stderr), done.status.code())
    };
    let data =
        |text: &str| serde_json::from_str::<Value>(&run("show", &["--json"], text).0).expect("it is data");
    let whole = data(&text);
    assert!(whole["is_cut"] == false && whole["file_ends_in_line"].is_null(), "{}", whole["is_cut"]);
    assert!(whole["ended_early"].is_null(), "{}", whole["ended_early"]);
    // In the middle of a line, and between two lines.
    let mid = text.len() / 2;
    let between = text[..mid].rfind('\n').expect("it has lines") + 1;
    for cut in [&text[..between + 3], &text[..between]] {
        let (printed, n_lines) = (data(cut), text[..between].lines().count());
        assert!(
            printed["is_cut"] == true && printed["file_ends_in_line"] == n_lines,
            "{}",
            printed["file_ends_in_line"]
        );
        let (all, some) = (&whole["packets"], &printed["packets"]);
        let n = some.as_array().expect("a list").len();
        assert!(
            n > 10 && all.as_array().expect("a list")[..n - 4] == some.as_array().expect("a list")[..n - 4]
        );
        let words = format!("; the file is cut short behind line {n_lines}, after ");
        assert!(run("show", &[], cut).0.lines().next().is_some_and(|line| line.contains(&words)));
        assert!(run("explain", &[], cut).0.lines().next().is_some_and(|line| line.contains(&words)));
        assert!(run("explain", &["--json"], cut).1.contains(&words));
    }
    let (_, printed, status) = run("show", &[], &text[..20]);
    assert!(status == Some(1) && printed.contains("cut.rec"), "{printed}");
}

/// A script would take a normal result for a crash: a closed pipe must not change the exit status.
#[test]
fn closed_pipe_keeps_exit_status() {
    let folder = Folder::new();
    let wrong = folder.write("wrong.weft", "CREATE QUEUE mine AS END;\n");
    let right =
        folder.write("right.weft", "CREATE QUEUE mine AS LIMIT 3 PACKETS ON OVERFLOW DROP TAIL; END;\n");
    let status = |args: &[&str], file: &std::path::Path| {
        let (reads, errors) = std::io::pipe().expect("there is one");
        drop(reads);
        let printed = errors.try_clone().expect("there is another");
        let mut deaf = weft(&folder);
        deaf.args(args).arg(file).stdout(printed).stderr(errors);
        deaf.status().expect("it runs").code()
    };
    assert_eq!(status(&["check"], &wrong), Some(1));
    assert_eq!(status(&["fmt", "--check"], &wrong), Some(1));
    assert_eq!(status(&["check"], &right), Some(0));
    let simulated = ["sim", "run", "--flows", "bulk=1", "--seeds", "1", "--for", "1s"];
    assert_eq!(status(&simulated, &right), Some(0));
}

/// The reference would be wrong about queues: when a packet's partition is found, how bits shift, and which fields of a
/// packet can be set.
#[test]
fn reference_handler_rules_hold() {
    let folder = Folder::new();
    let queue = "CREATE QUEUE told AS
  VAR one U8 = 1;
  VAR minus I8 = -1;
  VAR held U32;
  VAR big U8 = 200;
  PARTITION BY p.class INDEX 8;
  LIMIT 100000 PACKETS ON OVERFLOW DROP TAIL;
  ON ENQUEUE
    IF queue.packets <> held THEN DROP; END IF;
    SET held = held + 1;
    SET p.dscp = big;
    SET p.ecn = big - 300;
    IF 1 / 2.0 <> 0.5 OR 2 * 0.5 > 1 OR 7 / 2 <> 3 THEN DROP; END IF;
    IF CASE p.dscp WHEN 0 THEN 1.0 WHEN 63 THEN 2.5 * 2 ELSE 3 END <> 5 THEN DROP; END IF;
    SET p.class = 5;
    SET p.remaining = '77 B';
    SET p.slack = '3 ms';
    IF shift_right(number(minus), 63) <> 1 OR shift_right(8 * one, 65) <> 4 THEN DROP; END IF;
    IF shift_left(one, 64) <> 1 OR partition.index = 5 THEN DROP; END IF;
    ACCEPT;
  ON DEQUEUE
    IF p.class <> 5 OR p.remaining <> '77 B' OR p.slack <> '3 ms' THEN DROP; END IF;
    IF partition.index = 5 OR p.dscp <> 63 OR p.ecn <> 0 THEN DROP; END IF;
    IF queue.packets <> held - 1 THEN DROP; END IF;
    SET held = held - 1;
    SEND;
END;
";
    folder.write("told.weft", queue);
    let rows = rows(&folder, &["told.weft", "--flows", "bulk=1", "--seeds", "1", "--for", "5s"]);
    assert_eq!(rows[0]["dropped"], 0, "{}", rows[0]);
}

/// The guide would show a table that the command does not print.
#[test]
fn guide_shows_real_run_output() {
    let folder = Folder::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let guide = std::fs::read_to_string(format!("{root}/docs/src/guide/simulating.md")).expect("it is there");
    let command = "weft sim run examples/policy/queue.weft --queue least --queue fifo --queue fq_codel";
    assert!(guide.contains(&format!("{command}\n")), "the guide has another command");
    let done = output(weft(&folder).current_dir(root).args(command.split(' ').skip(1)));
    let printed = String::from_utf8(done.stdout).expect("it is text");
    assert!(guide.contains(&printed), "the guide is to have:\n{printed}");
}
