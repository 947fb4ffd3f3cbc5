//! Records the commit that the program is built from, for the environment of a result.

use std::process::Command;

fn main() {
    for path in ["../../.git/HEAD", "../../.git/index", "../../.git/refs/heads", "../"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let described =
        Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let commit = match described {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        // A source archive has no history.
        _ => "unknown".to_owned(),
    };
    println!("cargo::rustc-env=BANDROOT_COMMIT={commit}");
}
