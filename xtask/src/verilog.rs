//! Checks queue programs as gates, with Verilator and Yosys. Both must be installed, so no other step includes this.

use std::process::{Command, Stdio};

use crate::workspace::{Workspace, cargo};

/// Runs the modules of queue programs under Verilator and counts their gates with Yosys. Returns false on a difference.
pub(crate) fn run(workspace: &Workspace) -> Result<bool, String> {
    for tool in ["verilator", "yosys"] {
        let found = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return Err(format!("there is no `{tool}`; `apt-get install verilator yosys` would give both"));
        }
    }
    let status = Command::new(cargo())
        .args(["test", "--locked", "-p", "weft-verilog", "--test", "gates", "--"])
        .args(["--ignored", "--nocapture", "--test-threads", "1"])
        .current_dir(&workspace.root)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    Ok(status.success())
}
