//! Where a result comes from: program, commit, machine.

use std::time::{SystemTime, UNIX_EPOCH};

use dp_train::engine::EngineDescription;
use serde::Serialize;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that the program was built from; `-dirty` if files had changed since.
pub const COMMIT: &str = env!("BANDROOT_COMMIT");

/// What is recorded beside every result.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    /// The arguments after the program's name.
    command: String,
    version: &'static str,
    commit: &'static str,
    os: &'static str,
    arch: &'static str,
    /// The processor's own name, where the system tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<String>,
    threads: usize,
    /// What the last bits depend on, the instruction set above all: a checkpoint is continued with the same only.
    #[serde(skip_serializing_if = "Option::is_none")]
    instruction_set: Option<String>,
    /// What computed gradients, and how far a device was from the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
    /// Seconds since 1970 when the command ran.
    unix_time: u64,
}

impl Environment {
    /// The environment of this process.
    pub fn current() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        Self {
            command: format!("bandroot {}", arguments.join(" ")),
            version: VERSION,
            commit: COMMIT,
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            cpu: cpu_name(),
            threads: rayon::current_num_threads(),
            instruction_set: None,
            engine: None,
            unix_time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
        }
    }

    /// The same of a run, with what computes its gradients.
    pub fn with_engine(self, engine: EngineDescription) -> Self {
        let EngineDescription { name, arithmetic } = engine;
        Self { instruction_set: Some(arithmetic), engine: Some(name), ..self }
    }
}

fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
