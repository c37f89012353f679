//! Compares CoDel, FQ-CoDel, PIE, FQ-PIE and COBALT, twins and queue programs, with ns-3: the same items are sent and
//! dropped, to the nanosecond.
//!
//! Runs if `WEFT_NS3` names the folder `ns3` of the Python wheel (`pip install ns3==3.44.post0`), which has the headers
//! and libraries of ns-3, and if there is a `g++`.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it compiles and runs a program of others"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::queues::programs;
use crate::twins::{Disposition, Run, newton, run};
use weft_ir::queue::run::Interpreted;
use weft_sim::net::twins::{Codel, CodelRules, CodelSpec, FqCodel};
use weft_sim::net::{Discipline, Programmed};

/// As many seeds as the status document states.
const SEEDS: u64 = 20;
const ITEMS: u64 = 100_000;

/// If this fails, twins and programs agree and are wrong: ns-3 is the independent implementation.
#[test]
fn codel_and_fq_codel_match_ns_3() {
    let Some(ns3) = std::env::var_os("WEFT_NS3").map(PathBuf::from) else { return };
    let folder = std::env::temp_dir().join(format!("weft-ns3-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let driver = compile(&ns3, &folder);
    // ns-3 tests for fewer than 1500 bytes; the RFC for no more than the largest packet.
    let spec = CodelSpec { rules: CodelRules::Ns3, mtu: 1500, ..CodelSpec::default() };
    type Queue = Box<dyn Fn() -> Box<dyn Discipline>>;
    let program = |name: &str| -> Queue {
        let program = newton(name);
        Box::new(move || Box::new(Programmed::new(program.clone(), Interpreted::new(program.clone()), 1)))
    };
    let queues: [(&str, Queue); 4] = [
        ("codel", Box::new(move || Box::new(Codel::new(spec, 1000)))),
        ("codel", program("newton")),
        ("fq_codel", Box::new(move || Box::new(FqCodel::new(spec, 1024, 1514, 10_240)))),
        ("fq_codel", program("newton_each")),
    ];
    for (name, queue) in &queues {
        for seed in 0..SEEDS {
            let ours = run(&mut *queue(), seed, ITEMS);
            let dropped = ours
                .dispositions
                .iter()
                .filter(|(_, disposition)| matches!(disposition, Disposition::Dropped(_)))
                .count();
            assert!(dropped > 1000, "{name}, seed {seed}: {dropped}");
            let theirs = ask(&driver, &folder, &[name], &ours);
            assert_same(&driver_output(&ours), &theirs, &format!("{name}, seed {seed}"));
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

/// PIE and COBALT with ns-3's details.
///
/// PIE starts without a burst allowance, grants one at the first packet, and again after the queue was short for 1.5 s.
/// The timer of a flow's PIE starts with its first packet, and consumes 15 ms of the first allowance. Linux's addition
/// for delays of more than 250 ms is missing. COBALT treats an overflow as an event of both BLUE and CoDel. It keeps
/// the time of BLUE's last change in 32 bits. It computes square roots by Newton steps in 32 bits, the first sixteen
/// from a table.
const PROGRAMS: &str = "
CREATE QUEUE pie_of_ns3 (packets U32 = 1000, first INTERVAL = '150 ms') AS
  VAR chance F64;
  VAR wait INTERVAL;
  VAR wait_before INTERVAL;
  VAR allowance INTERVAL;
  VAR burst U8;
  VAR calm U32;
  VAR asked BOOL;
  LIMIT packets PACKETS ON OVERFLOW DROP TAIL;
  ON ENQUEUE
    IF allowance > 0 THEN ACCEPT; END IF;
    IF burst = 0 THEN
      SET burst = 1;
      SET allowance = CASE WHEN asked THEN '150 ms' ELSE first END;
      SET asked = TRUE;
    END IF;
    IF wait_before < '7.5 ms' AND chance < 0.2 OR queue.packets <= 2 THEN ACCEPT; END IF;
    IF rand() > chance THEN ACCEPT; END IF;
    DROP;
  ON DEQUEUE
    SET wait = CASE WHEN queue.packets = 0 THEN 0 ELSE p.sojourn END;
    SEND;
  ON EVERY '15 ms'
    LET step = 0.125 * (seconds(wait) - 0.015) + 1.25 * (seconds(wait) - seconds(wait_before));
    LET tuned = step / CASE WHEN chance < 0.000001 THEN 2048.0 WHEN chance < 0.00001 THEN 512.0
      WHEN chance < 0.0001 THEN 128.0 WHEN chance < 0.001 THEN 32.0 WHEN chance < 0.01 THEN 8.0
      WHEN chance < 0.1 THEN 2.0 ELSE 1.0 END;
    LET capped = CASE WHEN chance >= 0.1 THEN least(tuned, 0.02) ELSE tuned END;
    LET raised = CASE WHEN allowance > 0 THEN 0.0 ELSE capped + chance END;
    LET drained = CASE WHEN wait = 0 AND wait_before = 0 THEN raised * 0.98 ELSE raised END;
    SET chance = least(1.0, greatest(0.0, drained));
    SET allowance = greatest(0, allowance - '15 ms');
    LET short = wait < '7.5 ms' AND wait_before < '7.5 ms' AND chance = 0.0 AND allowance = 0;
    SET calm = CASE WHEN short AND burst = 2 THEN calm + 1 ELSE 0 END;
    SET burst = CASE WHEN short AND burst = 1 THEN 2 WHEN calm > 100 THEN 0 ELSE burst END;
    SET wait_before = wait;
END;
CREATE QUEUE fq_pie_of_ns3 AS
  fq EACH USING pie_of_ns3 (packets = 10240, first = '135 ms');
END;
CREATE QUEUE cobalt_of_ns3 (packets U32 = 1000) AS
  VAR next_at I64;
  VAR count U32;
  VAR root U32 = 4294967295;
  VAR dropping BOOL;
  VAR chance F64;
  VAR changed_at U32;
  LIMIT 4000 PACKETS ON OVERFLOW DROP TAIL;
  ON ENQUEUE
    IF queue.packets < packets THEN ACCEPT; END IF;
    IF number(now()) - changed_at > 5000000 THEN
      SET chance = least(1.0, chance + 0.00390625);
      SET changed_at = bit_and(number(now()), 4294967295);
    END IF;
    SET dropping = TRUE;
    SET next_at = number(now());
    SET count = greatest(count, 1);
    DROP;
  ON DEQUEUE
    LET at = number(now());
    LET late = p.sojourn > '5 ms';
    LET due = count > 0 AND at >= next_at;
    LET was_behind = at > next_at;
    IF late AND NOT dropping THEN SET next_at = at + shift_right(100000000 * root, 32); END IF;
    IF late THEN SET count = greatest(count, 1); END IF;
    SET dropping = late;
    IF due AND dropping THEN
      SET count = count + 1;
      SET root = ROOT;
      SET next_at = next_at + shift_right(100000000 * root, 32);
    END IF;
FALLING
    LET behind = CASE WHEN due THEN at > next_at ELSE was_behind END;
    IF p.sojourn > '400 ms' AND at - changed_at > 5000000 THEN
      SET chance = least(1.0, chance + 0.00390625);
      SET changed_at = bit_and(at, 4294967295);
    END IF;
    LET dropped = due AND dropping;
    IF chance > 0.0 THEN
      IF rand() < chance THEN
        IF count = 0 THEN SET next_at = at + 100000000; END IF;
        DROP;
      END IF;
    END IF;
    IF count = 0 THEN
      SET next_at = at + 100000000;
    ELSIF behind AND NOT dropped THEN
      SET next_at = at;
    END IF;
    IF dropped THEN DROP; END IF;
    SEND;
  ON EMPTY
    LET at = number(now());
    IF chance > 0.0 AND at - changed_at > 5000000 THEN
      SET chance = greatest(0.0, chance - 0.000244140625);
      SET changed_at = bit_and(at, 4294967295);
    END IF;
    SET dropping = FALSE;
    IF count > 0 AND at >= next_at THEN
      SET count = count - 1;
      SET root = ROOT;
      SET next_at = next_at + shift_right(100000000 * root, 32);
    END IF;
    LEAVE;
END;
";

/// Maximum number of decrements of COBALT's count per packet, above sixteen and below. ns-3 has no bound; the loads
/// here stay below these.
const FALLS: [usize; 2] = [64, 16];

/// If this fails, PIE's controller and COBALT's count agree in program and interpreter, and are wrong.
#[test]
fn pie_fq_pie_and_cobalt_match_ns_3() {
    let Some(ns3) = std::env::var_os("WEFT_NS3").map(PathBuf::from) else { return };
    let folder = std::env::temp_dir().join(format!("weft-ns3-pie-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let driver = compile(&ns3, &folder);
    let draws: Arc<[f64]> = draws(&driver, &folder).into();
    let all = programs(&texts());
    for (name, program, size) in
        [("pie", "pie_of_ns3", ""), ("fq_pie", "fq_pie_of_ns3", ""), ("cobalt", "cobalt_of_ns3", "1000p")]
    {
        let program = all.iter().find(|one| one.name == program).expect("it is in the text");
        let program = Arc::new(program.clone());
        for seed in 0..SEEDS {
            let mut queue = Programmed::new(program.clone(), Interpreted::new(program.clone()), 1);
            let (draws, mut next) = (draws.clone(), 0);
            queue.draw_from(move || {
                next += 1;
                draws[next - 1]
            });
            let ours = run(&mut queue, seed, ITEMS);
            let dropped = ours
                .dispositions
                .iter()
                .filter(|(_, disposition)| matches!(disposition, Disposition::Dropped(_)))
                .count();
            assert!(dropped > 1000, "{name}, seed {seed}: {dropped}");
            let theirs = ask(&driver, &folder, &[name, size], &ours);
            assert_same(&driver_output(&ours), &theirs, &format!("{name}, seed {seed}"));
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

/// Compares the outputs. The first event that differs is the most useful message.
fn assert_same(ours: &str, theirs: &str, what: &str) {
    let differs = ours.lines().zip(theirs.lines()).enumerate().find(|(_, (a, b))| a != b);
    assert_eq!(differs, None, "{what}");
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

/// The programs with loops and tables unrolled, because the language has neither.
fn texts() -> String {
    let mut list = vec![u64::from(u32::MAX)];
    for count in 1..16_u64 {
        let newton = |root: u64| {
            let val = ((3 << 32) - count * ((root * root) >> 32)) >> 2;
            ((u128::from(val) * u128::from(root)) >> 31) as u32
        };
        let root = (0..4).fold(*list.last().expect("one is there"), |root, _| u64::from(newton(root)));
        list.push(root);
    }
    let cases = list.iter().enumerate().map(|(count, root)| format!(" WHEN count = {count} THEN {root}"));
    let step =
        "shift_right(shift_right(3 * 4294967296 - count * shift_right(root * root, 32), 2) * root, 31)";
    let root = format!("CASE{} ELSE {step} END", cases.collect::<String>());
    let fall = |least: usize, root: &str| {
        format!(
            "    IF due AND NOT dropping AND count > {least} AND at >= next_at THEN
      SET count = count - 1;
      SET root = {root};
      SET next_at = next_at + shift_right(100000000 * root, 32);
    END IF;\n"
        )
    };
    let falls = fall(16, step).repeat(FALLS[0]) + &fall(0, &root).repeat(FALLS[1]);
    let text = PROGRAMS.replace("FALLING\n", &falls).replace("ROOT", &root);
    format!("IMPORT 'library/queues/fq.weft';\n{text}")
}

/// The random numbers of ns-3.
fn draws(driver: &Path, folder: &Path) -> Vec<f64> {
    let file = folder.join("draws");
    let n = (2 * ITEMS).to_string();
    let done = Command::new(driver).args(["draws", &n]).arg(&file).status().expect("it was compiled");
    assert!(done.success());
    let text = std::fs::read_to_string(file).expect("it has written them");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

fn compile(ns3: &Path, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ns3/driver.cc");
    let (driver, libraries) = (folder.join("driver"), ns3.join("lib64"));
    let done = Command::new("g++")
        .args(["-std=c++20", "-O1", "-o"])
        .arg(&driver)
        .arg(&source)
        .arg(format!("-I{}", ns3.join("include").display()))
        .arg(format!("-L{}", libraries.display()))
        .args(["traffic-control", "network", "core"].map(|name| format!("-lns3.44-{name}")))
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .status()
        .expect("there is a g++");
    assert!(done.success());
    driver
}

/// ns-3's result for the same operations on a queue. `name` may have further arguments.
fn ask(driver: &Path, folder: &Path, name: &[&str], run: &Run) -> String {
    let mut calls = String::new();
    for (now, item) in &run.calls {
        let _ = match item {
            Some(item) => writeln!(calls, "{now} E {} {} {}", item.id, item.len, item.flow),
            None => writeln!(calls, "{now} D 0 0 0"),
        };
    }
    let (asked, answer) = (folder.join("calls"), folder.join("dispositions"));
    std::fs::write(&asked, calls).expect("the folder is ours");
    let mut driver = Command::new(driver);
    driver.arg(name[0]).arg(&asked).arg(&answer).args(&name[1..]);
    let done = driver.status().expect("it was compiled");
    assert!(done.success());
    std::fs::read_to_string(answer).expect("it has written its answer")
}

/// The driver's output format: ns-3 reports a drop before the item that is sent instead.
fn driver_output(run: &Run) -> String {
    let mut sorted: Vec<(u64, bool, u64)> = run
        .dispositions
        .iter()
        .map(|(now, disposition)| match disposition {
            Disposition::Dropped(id) => (*now, false, *id),
            Disposition::Sent(id) => (*now, true, *id),
        })
        .collect();
    sorted.sort_by_key(|(now, is_sent, _)| (*now, *is_sent));
    let mut text = String::new();
    for (now, is_sent, id) in sorted {
        let _ = writeln!(text, "{now} {} {id}", if is_sent { "sent" } else { "dropped" });
    }
    text
}
