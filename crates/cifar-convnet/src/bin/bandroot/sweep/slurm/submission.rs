//! `sbatch`, and its refusals in words that say what to change.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use cifar_convnet::BadArgument;
use cifar_convnet::config::slurm::Slurm;

/// What sbatch says, the key that it is about, and what to do.
/// What is more special comes first: the sentence that Slurm has for all limits of accounts and users speaks of time limits
/// whatever the limit was, which only a line before it may name.
const REFUSALS: [(&str, &str, &str); 31] = [
    ("maxwall", "time", SMALLER),
    ("cpuminutes", "time", SMALLER),
    ("cpurunminutes", "time", SMALLER),
    ("maxcpu", "cpus", SMALLER),
    ("mincpu", "cpus", "take more: sacctmgr show qos says how many"),
    ("grpcpu", "cpus", SMALLER),
    ("maxmem", "memory", SMALLER),
    ("grpmem", "memory", SMALLER),
    ("maxgres", "gres", SMALLER),
    ("grpgres", "gres", SMALLER),
    ("submitjob", "tasks", FEWER),
    ("maxjobs", "tasks", FEWER),
    ("grpjobs", "tasks", FEWER),
    ("accounting/qos policy", "tasks", FEWER),
    ("array spec", "tasks", "take fewer: scontrol show config | grep MaxArraySize says how many"),
    ("partition name", "partition", "sinfo lists those that there are"),
    ("invalid partition", "partition", "sinfo lists those that there are"),
    ("partition specified", "partition", "name one: sinfo lists those that there are"),
    ("gres", "gres", "sinfo -o %G lists what nodes have"),
    ("feature", "constraint", "sinfo -o %f lists what nodes have"),
    ("time limit", "time", "take less: sinfo -o '%P %l' lists the limits"),
    ("--time", "time", "write minutes, HH:MM:SS or D-HH"),
    ("account", "account", "sacctmgr show associations user=$USER lists yours"),
    ("qos", "qos", "sacctmgr show qos lists those that there are"),
    ("memory", "memory", "take less: sinfo -o '%P %m' lists what nodes have, in MB"),
    ("--mem", "memory", "write a number with K, M, G or T"),
    ("processors", "cpus", "take fewer: sinfo -o '%P %c' lists what nodes have"),
    ("cpu count", "cpus", "take fewer: sinfo -o '%P %c' lists what nodes have"),
    (
        "node configuration",
        "cpus",
        "no node has so much: take fewer cpus, less memory or another constraint",
    ),
    ("limit", "tasks", FEWER),
    ("option", "options", "sbatch --help lists those that there are"),
];

const FEWER: &str = "take fewer, or wait until others have ended: the cluster limits what a user or group may submit";
const SMALLER: &str =
    "take less: sacctmgr show qos and sacctmgr show associations user=$USER list the limits";

/// Variables of sbatch that would win over what the script needs: without the signal ahead of the limit, the requeue and the
/// appended log nothing is continued, after a wait the job would be known only when it has ended, and in another place nobody
/// would find the log.
const NOT_FOR_THE_SCRIPT: [&str; 7] = [
    "SBATCH_ARRAY_INX",
    "SBATCH_SIGNAL",
    "SBATCH_OPEN_MODE",
    "SBATCH_NO_REQUEUE",
    "SBATCH_WAIT",
    "SBATCH_OUTPUT",
    "SBATCH_ERROR",
];

/// Refuses to submit to another cluster: its jobs would not be found in the queue of this one.
///
/// # Errors
/// If the environment names clusters.
pub(super) fn refuse_clusters() -> anyhow::Result<()> {
    for variable in ["SBATCH_CLUSTERS", "SLURM_CLUSTERS"] {
        ensure!(
            std::env::var_os(variable).is_none(),
            BadArgument(format!(
                "{variable} is set, but --launch slurm submits to the cluster it is called on: unset it, and call it on the \
                 login node of the cluster that is meant"
            ))
        );
    }
    Ok(())
}

/// What sbatch says if the request may have arrived and only the answer did not.
const UNHEARD: [&str; 4] = ["timed out", "zero bytes", "send/recv", "unexpected message"];

/// Where a program is.
///
/// # Errors
/// If it is nowhere on the PATH.
pub(super) fn find(program: &str) -> anyhow::Result<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.into_iter().find(|file| file.is_file()).ok_or_else(|| {
        BadArgument(format!(
            "there is no {program} on the PATH: --launch slurm is for the login node of a cluster with Slurm; here, leave it \
             out to run on this machine"
        ))
        .into()
    })
}

/// Submits a script: the number of the job.
///
/// # Errors
/// What sbatch said, and what to change.
pub(super) fn sbatch(script: &Path, slurm: &Slurm, written_in: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(find("sbatch")?);
    for variable in NOT_FOR_THE_SCRIPT {
        command.env_remove(variable);
    }
    let output =
        command.arg("--parsable").arg(script).output().context("could not start sbatch")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let lower = said.to_lowercase();
        if UNHEARD.iter().any(|words| lower.contains(words)) {
            bail!(
                "sbatch got no answer ({}), and the job may exist all the same: squeue --me shows it, and scancel ends it \
                 before you submit again",
                reason(&said)
            );
        }
        bail!(BadArgument(
            explain(&said, slurm, written_in, |name| std::env::var_os(name).is_some())
        ));
    }
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    job_of(&answer).map(str::to_owned).with_context(|| {
        format!(
            "sbatch answered {:?} in place of the number of a job; squeue --me shows whether there is one, and scancel \
             ends it",
            answer.trim()
        )
    })
}

/// The number of the job, in the last line of an answer: a site's own sbatch may greet before it.
fn job_of(answer: &str) -> Option<&str> {
    let job = answer.trim().lines().next_back()?.split(';').next()?.trim();
    (!job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit())).then_some(job)
}

/// The lines that sbatch said, without what it puts before each.
fn lines(said: &str) -> Vec<&str> {
    let lines = said.lines().map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("sbatch: ").unwrap_or(line);
        let line = line.strip_prefix("error: ").unwrap_or(line);
        line.strip_prefix("Batch job submission failed: ").unwrap_or(line)
    });
    lines.filter(|line| !line.is_empty() && !line.starts_with("Try ")).collect()
}

/// The last line, behind the name of the limit if one is reached: other lines before it say how sbatch came there.
fn reason(said: &str) -> String {
    let reason = match &lines(said)[..] {
        [] => "it did not say why".to_owned(),
        [.., limit, last] if !limit.contains(' ') => format!("{limit}: {last}"),
        [.., last] => (*last).to_owned(),
    };
    reason.trim_end_matches('.').to_owned()
}

/// One sentence from what sbatch said.
fn explain(said: &str, slurm: &Slurm, written_in: &Path, is_set: impl Fn(&str) -> bool) -> String {
    let (reason, all) = (reason(said), lines(said).join("; ").to_lowercase());
    if all.contains("contact slurm controller") || all.contains("connect") {
        return format!(
            "sbatch does not reach the cluster ({reason}): try again when sinfo answers"
        );
    }
    let Some((_, key, remedy)) = REFUSALS.iter().find(|(words, ..)| all.contains(words)) else {
        return format!("sbatch refused the workers: {reason}");
    };
    let variable = format!("SBATCH_{}", variable(key));
    let given = slurm.named().find(|(found, ..)| found == key);
    let value = given.map_or(String::new(), |(_, _, value)| format!(" = {value:?}"));
    let place = match is_set(&variable) {
        true => format!("{variable} in the environment"),
        false => format!("slurm.{key}{value} in {}", written_in.display()),
    };
    format!("sbatch refused the workers ({reason}): change {place}; {remedy}")
}

/// The end of sbatch's variable for a key.
fn variable(key: &str) -> String {
    match key {
        "memory" => "MEM_PER_NODE".to_owned(),
        "time" => "TIMELIMIT".to_owned(),
        "cpus" => "CPUS_PER_TASK".to_owned(),
        key => key.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_job_is_found_behind_what_a_site_adds() {
        for answer in ["42\n", "42;cluster\n", "Welcome!\n42\n"] {
            assert_eq!(job_of(answer), Some("42"), "{answer:?}");
        }
        for answer in ["", "\n", "Submitted", "42 jobs", ";cluster"] {
            assert_eq!(job_of(answer), None, "{answer:?}");
        }
    }

    const POLICY: &str =
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";

    #[test]
    fn every_refusal_says_what_to_change() {
        let slurm = Slurm { partition: Some("gpuu".to_owned()), ..Slurm::default() };
        let failed = |why: &str| format!("sbatch: error: Batch job submission failed: {why}\n");
        let sentence = |said: &str| explain(said, &slurm, Path::new("a.toml"), |_| false);
        for (why, words) in [
            ("Invalid job array specification", "slurm.tasks in a.toml; take fewer"),
            ("Invalid partition name specified", "slurm.partition = \"gpuu\" in a.toml; sinfo"),
            ("Invalid generic resource (gres) specification", "slurm.gres in"),
            ("Invalid feature specification", "slurm.constraint in"),
            ("Requested time limit is invalid (missing or exceeds some limit)", "slurm.time in"),
            ("Invalid account or account/partition combination specified", "slurm.account in"),
            ("Invalid qos specification", "slurm.qos in"),
            ("Memory specification can not be satisfied", "slurm.memory in"),
            ("Requested node configuration is not available", "slurm.cpus in"),
            ("More processors requested than permitted", "slurm.cpus in"),
            ("Time limit specification required, but not provided", "slurm.time in"),
            (POLICY, "slurm.tasks in"),
        ] {
            let sentence = sentence(&failed(why));
            assert!(sentence.contains(words) && sentence.contains(why), "{sentence}");
            assert_eq!(sentence.lines().count(), 1);
        }
        for (limit, words) in [
            ("QOSMaxSubmitJobPerUserLimit", "slurm.tasks in"),
            ("AssocMaxSubmitJobLimit", "slurm.tasks in"),
            ("AssocGrpSubmitJobsLimit", "slurm.tasks in"),
            ("QOSMaxCpuPerUserLimit", "slurm.cpus in"),
            ("QOSMaxCpuPerJobLimit", "slurm.cpus in"),
            ("QOSMaxMemoryPerJob", "slurm.memory in"),
            ("QOSMaxGRESPerUser", "slurm.gres in"),
            ("QOSMaxWallDurationPerJobLimit", "slurm.time in"),
            ("AssocMaxCpuMinutesPerJobLimit", "slurm.time in"),
        ] {
            let sentence = sentence(&format!("sbatch: error: {limit}\n{}", failed(POLICY)));
            assert!(sentence.contains(words), "{limit}: {sentence}");
            assert!(sentence.contains(limit), "which one it was: {sentence}");
        }
        let unknown = sentence(
            "sbatch: unrecognized option '--exclud=a'\nTry \"sbatch --help\" for more information\n",
        );
        assert!(unknown.contains("slurm.options") && unknown.contains("--exclud=a"), "{unknown}");
        assert!(sentence(&failed("Something new")).ends_with("refused the workers: Something new"));
        assert!(sentence("").contains("did not say why"));
        let lost = sentence(&failed("Unable to contact slurm controller (connect failure)"));
        assert!(lost.contains("does not reach the cluster"), "{lost}");
        let of_environment = explain(
            &failed("Invalid partition name specified"),
            &slurm,
            Path::new("a.toml"),
            |name| name == "SBATCH_PARTITION",
        );
        assert!(of_environment.contains("change SBATCH_PARTITION in the env"), "{of_environment}");
    }
}
