//! The table `[slurm]` of a sweep: what its workers ask a cluster for.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `bandroot sweep --launch slurm` asks a cluster for. It stands in the file of a sweep, not in a config, and
/// every key may be left out; sbatch's own variables (`SBATCH_PARTITION`, ...) win over it, but for what the script
/// needs for itself (`SBATCH_ARRAY_INX`, `SBATCH_SIGNAL`, `SBATCH_OPEN_MODE`, `SBATCH_NO_REQUEUE`, `SBATCH_WAIT`,
/// `SBATCH_OUTPUT`, `SBATCH_ERROR`). The
/// workers take runs one by one until none is missing. Ahead of the time limit a worker writes a checkpoint and its
/// task goes back to the queue; any node may continue the run, but on another instruction set that is refused, because
/// the same noise must meet the same gradients to the last bit: on a cluster of several kinds of processors name one
/// kind by `constraint` (`instruction_set` in `environment.json` says which one a run began on; AVX2 and AVX-512 give the same
/// bits and count as one).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Slurm {
    /// Workers, each a task of one array; fewer if fewer runs are missing.
    pub tasks: usize,
    /// Processors of a worker (`--cpus-per-task`), which are its threads too.
    pub cpus: usize,
    /// Memory of a worker, such as `"4G"` (`--mem`).
    pub memory: Option<String>,
    /// Time limit of a worker, such as `"04:00:00"` or `"1-00"` (`--time`). Short ones start sooner, and lose nothing.
    pub time: Option<String>,
    /// Partition (`--partition`).
    pub partition: Option<String>,
    /// Account that pays (`--account`).
    pub account: Option<String>,
    /// Quality of service (`--qos`).
    pub qos: Option<String>,
    /// Generic resources of a worker, such as `"gpu:1"` (`--gres`).
    pub gres: Option<String>,
    /// Features that a node must have, such as `"avx2"` (`--constraint`): one kind of processor, so that every node can
    /// continue what another began.
    pub constraint: Option<String>,
    /// How often a worker goes back to the queue at its time limit.
    pub restarts: usize,
    /// Lines of shell before the worker starts, such as `"module load gcc"`.
    pub setup: Vec<String>,
    /// Any other options of sbatch, such as `"--exclude=node7"`.
    pub options: Vec<String>,
}

impl Default for Slurm {
    fn default() -> Self {
        Self {
            tasks: 8,
            cpus: 1,
            memory: None,
            time: None,
            partition: None,
            account: None,
            qos: None,
            gres: None,
            constraint: None,
            restarts: 10,
            setup: Vec::new(),
            options: Vec::new(),
        }
    }
}

/// More workers than any array of Slurm can have.
const MOST_TASKS: usize = 1_000_000;

/// How long before its time limit a worker is told, unless the limit is short.
const WARNING: Duration = Duration::from_secs(180);

/// The least: a checkpoint and a request to the controller fit into it.
const LEAST_WARNING: Duration = Duration::from_secs(15);

/// Options that the script has already and would not work without, with their letters; and `--wait`, with which the number of
/// the job would be known only after its end, and `--clusters`, on another of which it would not be found. `--time` has a key,
/// from which the script takes when to tell a worker.
const TAKEN: [(&str, &str); 11] = [
    ("--array", "-a"),
    ("--signal", ""),
    ("--open-mode", ""),
    ("--chdir", "-D"),
    ("--no-requeue", ""),
    ("--cpus-per-task", "-c"),
    ("--time", "-t"),
    ("--wait", "-W"),
    ("--output", "-o"),
    ("--error", "-e"),
    ("--clusters", "-M"),
];

impl Slurm {
    /// Refuses what no script can be made of; the key is named.
    ///
    /// # Errors
    /// One sentence without the file.
    pub fn check(&self) -> Result<(), String> {
        let count = |key: &str, number: usize, least: usize, most: usize| match number {
            number if (least..=most).contains(&number) => Ok(()),
            number => Err(format!("slurm.{key} must be {least} to {most}, but it is {number}")),
        };
        count("tasks", self.tasks, 1, MOST_TASKS)?;
        count("cpus", self.cpus, 1, 1024)?;
        count("restarts", self.restarts, 0, 10_000)?;
        for (key, _, value) in self.named() {
            let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"'\"\\#".contains(c);
            if value.is_empty() || !value.chars().all(is_plain) {
                return Err(format!(
                    "slurm.{key} = {value:?} must be one word without quotes and #"
                ));
            }
        }
        if let Some(time) = &self.time
            && seconds(time).is_none()
        {
            return Err(format!(
                "slurm.time = {time:?} is no time limit of Slurm; write minutes, \"04:00:00\", \"1-00\" or \"UNLIMITED\""
            ));
        }
        for line in &self.setup {
            if line.contains(['\n', '\r', '\0']) {
                return Err(format!("slurm.setup has {line:?}: write one line of shell each"));
            }
        }
        for option in &self.options {
            if !option.starts_with('-') || option.contains(['\n', '\r', '\0']) {
                return Err(format!(
                    "slurm.options has {option:?}: write options of sbatch, such as \"--exclude=node7\""
                ));
            }
            if let Some((name, _)) = TAKEN.iter().find(|taken| has(option, **taken)) {
                return Err(format!(
                    "slurm.options has {option:?}, but {name} is the script's own: leave it out, or use the key"
                ));
            }
        }
        Ok(())
    }

    /// Keys with their options of sbatch, as far as they are given.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        [
            ("memory", "--mem", &self.memory),
            ("time", "--time", &self.time),
            ("partition", "--partition", &self.partition),
            ("account", "--account", &self.account),
            ("qos", "--qos", &self.qos),
            ("gres", "--gres", &self.gres),
            ("constraint", "--constraint", &self.constraint),
        ]
        .into_iter()
        .filter_map(|(key, option, value)| Some((key, option, value.as_deref()?)))
    }

    /// How long before its time limit a worker is told: three minutes, or a quarter of a short limit. A limit from
    /// elsewhere wins over `time`.
    pub fn warning(&self, elsewhere: Option<&str>) -> Duration {
        let limit = elsewhere.or(self.time.as_deref()).and_then(seconds).flatten();
        let quarter = limit.map_or(WARNING, |seconds| Duration::from_secs(seconds / 4));
        quarter.clamp(LEAST_WARNING, WARNING)
    }
}

/// Whether a line of options has one of them: a line may hold several, a long name may be cut short, and a letter may have its
/// value behind it.
fn has(line: &str, (name, letter): (&str, &str)) -> bool {
    line.split_whitespace().any(|word| {
        let given = word.split('=').next().unwrap_or_default();
        match word.starts_with("--") {
            // Shorter ones are not of one option alone.
            true => given.len() > "--x".len() && name.starts_with(given),
            false => !letter.is_empty() && word.starts_with(letter),
        }
    })
}

/// The seconds of a time limit as Slurm writes it: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`. The inner `None` is
/// no limit, the outer one no time.
fn seconds(text: &str) -> Option<Option<u64>> {
    if ["UNLIMITED", "INFINITE"].contains(&text.to_uppercase().as_str()) {
        return Some(None);
    }
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| digits)
    };
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(number).collect::<Option<Vec<u64>>>()?;
    let (hours, minutes, seconds) = match (days.is_some(), &parts[..]) {
        (true, &[hours]) => (hours, 0, 0),
        (true, &[hours, minutes]) => (hours, minutes, 0),
        (false, &[minutes]) => (0, minutes, 0),
        (false, &[minutes, seconds]) => (0, minutes, seconds),
        (_, &[hours, minutes, seconds]) => (hours, minutes, seconds),
        _ => return None,
    };
    let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60)?.checked_add(seconds).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_read_as_slurm_does() {
        let limit = |text: &str| seconds(text).map(|limit| limit.unwrap_or(u64::MAX));
        assert_eq!(limit("90"), Some(5400));
        assert_eq!(limit("1:30"), Some(90));
        assert_eq!((limit("04:00:00"), limit("0-4")), (Some(14400), Some(14400)));
        assert_eq!(
            (limit("1-00"), limit("1-0:1"), limit("1-0:0:1")),
            (Some(86400), Some(86460), Some(86401))
        );
        assert_eq!(limit("unlimited"), Some(u64::MAX));
        for text in ["", "4h", "1:2:3:4", "-1", "1-", "1-2-3", "+5", "99999999999999999999"] {
            assert_eq!(limit(text), None, "{text}");
        }
    }

    #[test]
    fn a_worker_is_told_three_minutes_ahead_or_a_quarter_of_a_short_limit() {
        let warning = |time: Option<&str>| {
            Slurm { time: time.map(str::to_owned), ..Slurm::default() }.warning(None).as_secs()
        };
        assert_eq!(warning(None), 180);
        assert_eq!((warning(Some("04:00:00")), warning(Some("UNLIMITED"))), (180, 180));
        assert_eq!((warning(Some("4")), warning(Some("1")), warning(Some("0:20"))), (60, 15, 15));
        let long = Slurm { time: Some("1-00".to_owned()), ..Slurm::default() };
        assert_eq!(long.warning(Some("4")).as_secs(), 60, "what sbatch takes from its environment");
    }

    #[test]
    fn what_makes_no_script_is_refused_by_its_key() {
        let refused = |text: &str, word: &str| {
            let slurm: Slurm = toml::from_str(text).unwrap();
            let message = slurm.check().unwrap_err();
            assert!(message.contains(word), "{message}");
        };
        refused("tasks = 0", "slurm.tasks");
        refused("cpus = 0", "slurm.cpus");
        refused("time = '4h'", "slurm.time");
        refused("partition = 'a b'", "slurm.partition");
        refused("account = ''", "slurm.account");
        refused("account = 'a#b'", "slurm.account");
        refused("constraint = \"a\\nb\"", "slurm.constraint");
        refused("setup = [\"a\\nb\"]", "slurm.setup");
        refused("options = ['exclude=a']", "slurm.options");
        refused("options = ['--array=1-3']", "--array=1-3");
        for taken in [
            "-a1-3",
            "--arr=1-3",
            "--exclude=n7 --array 1-3",
            "-c 3",
            "--signal=USR2@9",
            "-t 5",
            "-W",
            "-M far",
            "--cluster=far",
            "-o log",
            "--error=log",
        ] {
            refused(&format!("options = ['{taken}']"), taken);
        }
        for option in [
            "--exclude=node7",
            "--wait-all-nodes=1",
            "-A group",
            "--mem-per-cpu=1G",
            "--time-min=5",
        ] {
            let slurm = Slurm { options: vec![option.to_owned()], ..Slurm::default() };
            slurm.check().unwrap();
        }
        assert!(toml::from_str::<Slurm>("task = 3").unwrap_err().to_string().contains("task"));
        let all = "tasks = 4\ncpus = 2\nmemory = '4G'\ntime = '1-00'\npartition = 'a,b'\naccount = 'a'\n\
            qos = 'q'\ngres = 'gpu:1'\nconstraint = '[avx2|avx512]'\nrestarts = 0\n\
            setup = ['module load x']\noptions = ['--exclude=node7']";
        toml::from_str::<Slurm>(all).unwrap().check().unwrap();
    }
}
