//! `bandroot audit`: attacks on the noise, for those who do not take our word for it.

use anyhow::{Context, bail};
use dp_train::audit::{self, AuditReport};
use dp_train::seeds::RunSeed;

use crate::cli::Audit;
use crate::commands::plan;
use crate::terminal::output;
use cifar_convnet::files;

/// Attacks the noise of a config's plan; a bound above the claim is an error.
pub(crate) fn audit(arguments: &Audit) -> anyhow::Result<()> {
    let plan = plan::from_file(&arguments.config, &arguments.aof)?;
    let report: AuditReport = audit::audit(&plan, arguments.trials, RunSeed(arguments.seed))
        .with_context(|| format!("could not audit {}", arguments.config.config.display()))?;
    if arguments.json {
        output::print(&files::json(&report)?)?;
    } else {
        output::print(&report.to_string())?;
    }
    if !report.passed() {
        bail!("the audit found the claim or the noise of the plan to be wrong");
    }
    Ok(())
}
