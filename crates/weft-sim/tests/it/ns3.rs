//! CoDel and FQ-CoDel, twins and queue programs, against ns-3: what is sent and what is dropped, item for item, to the
//! nanosecond.
//!
//! It is run where `WEFT_NS3` names the folder `ns3` of the Python wheel (`pip install ns3==3.44.post0`), which has
//! the headers and libraries of ns-3, and there is a `g++`.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it compiles and runs a program of others"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::twins::{Fate, Run, newton, run};
use weft_ir::queue::run::Interpreted;
use weft_sim::net::twins::{Codel, CodelRules, CodelSpec, FqCodel};
use weft_sim::net::{Discipline, Programmed};

/// As many as the figure in the status asks for.
const SEEDS: u64 = 20;
const ITEMS: u64 = 100_000;

/// Twins and programs would be alike and wrong: this is the one implementation of others that they are compared with.
#[test]
fn codel_and_fq_codel_drop_what_ns_3_drops() {
    let Some(ns3) = std::env::var_os("WEFT_NS3").map(PathBuf::from) else { return };
    let folder = std::env::temp_dir().join(format!("weft-ns3-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let driver = compile(&ns3, &folder);
    // ns-3 asks for fewer bytes than 1500 where the RFC has no more than the largest packet.
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
            let dropped = ours.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Dropped(_))).count();
            assert!(dropped > 1000, "{name}, seed {seed}: {dropped}");
            let theirs = ask(&driver, &folder, name, &ours);
            assert_eq!(told(&ours), theirs, "{name}, seed {seed}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
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

/// What ns-3 says to the same calls.
fn ask(driver: &Path, folder: &Path, name: &str, run: &Run) -> String {
    let mut calls = String::new();
    for (now, item) in &run.calls {
        let _ = match item {
            Some(item) => writeln!(calls, "{now} E {} {} {}", item.id, item.len, item.flow),
            None => writeln!(calls, "{now} D 0 0 0"),
        };
    }
    let (asked, answer) = (folder.join("calls"), folder.join("fates"));
    std::fs::write(&asked, calls).expect("the folder is ours");
    let done = Command::new(driver).arg(name).arg(&asked).arg(&answer).status().expect("it was compiled");
    assert!(done.success());
    std::fs::read_to_string(answer).expect("it has written its answer")
}

/// As the driver writes it: ns-3 tells of a drop before it gives the item that is sent instead.
fn told(run: &Run) -> String {
    let mut sorted: Vec<(u64, bool, u64)> = run
        .fates
        .iter()
        .map(|(now, fate)| match fate {
            Fate::Dropped(id) => (*now, false, *id),
            Fate::Sent(id) => (*now, true, *id),
        })
        .collect();
    sorted.sort_by_key(|(now, is_sent, _)| (*now, *is_sent));
    let mut text = String::new();
    for (now, is_sent, id) in sorted {
        let _ = writeln!(text, "{now} {} {id}", if is_sent { "sent" } else { "dropped" });
    }
    text
}
