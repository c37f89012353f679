//! Builds and starts the product.

use std::process::Command;

use crate::workspace::{Workspace, cargo};

/// Builds the release binaries; returns false if they do not build.
pub(crate) fn build(workspace: &Workspace) -> Result<bool, String> {
    let status = Command::new(cargo())
        .args(["build", "--release", "--locked", "-p", "weft", "-p", "shop"])
        .current_dir(&workspace.root)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    Ok(status.success())
}

/// Runs the release `weft` from the workspace root; returns false if its status is not 0.
pub(crate) fn weft(workspace: &Workspace, command: &[&str], args: &[String]) -> Result<bool, String> {
    let program = workspace.target.join("release/weft");
    let status = Command::new(&program)
        .args(command)
        .args(args)
        .current_dir(&workspace.root)
        .status()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    Ok(status.success())
}
