//! Claims: which process runs which cell, on a folder that many processes share.
//!
//! The claims of a cell are numbered files, `NAME.claim-0001`, `NAME.claim-0002`, ...; the highest number
//! holds the cell. A claim is made by creating the next number, which the file system lets one process
//! do (`O_EXCL`), and only after the claim before it was found dead. Claims are never removed, so no number is used again: of
//! two processes that find the same dead claim one replaces it, who is late with an old number gets none, and whether a
//! claim is still the highest is one question for the next number, however many cells there are.
//!
//! Who is alive:
//!
//! * A claim is held under a file lock, which the process that trains inherits as its standard input. The
//!   system drops the lock when both are gone, however they ended: a claim of this boot of this
//!   machine is dead if and only if its lock can be taken. No process number is looked up, so none can be mistaken
//!   for another's.
//! * A claim of another machine is dead if besides its file has not been touched for [`STALE`], on
//!   the clock of who waits. Its owner touches it every [`HEARTBEAT`] and gives up if a higher number is there.
//! * The same goes for a claim whose owner got no lock, although others may get one: a server can be without locks for a
//!   moment.
//! * A claim that names no owner yet is somebody's who is about to write it: it is treated as another machine's,
//!   because on some network file systems a lock is only known to the machine that holds it.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use cifar_convnet::{files, machine};

/// How often a claim is touched.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// How long the claim of another machine must have been left alone to count as dead.
pub(crate) const STALE: Duration = Duration::from_secs(180);

/// Who holds a claim, for the rules above and for people who look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    pub(crate) host: Option<String>,
    boot: Option<String>,
    /// When it claimed the cell, in seconds since 1970.
    #[serde(default)]
    pub(crate) since: Option<u64>,
    /// The task of Slurm that it is.
    #[serde(default)]
    pub(crate) job: Option<String>,
    /// Whether it holds a lock, without which only its silence tells that it is gone.
    #[serde(default = "holds_a_lock")]
    locked: bool,
}

/// What claims did not say that were made before they did.
fn holds_a_lock() -> bool {
    true
}

impl Owner {
    fn current() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let task = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
        let job = task.map(|(job, task)| format!("{job}_{task}"));
        Self {
            pid: std::process::id(),
            host: machine::host(),
            boot: machine::boot(),
            since: None,
            job: job.or_else(|| variable("SLURM_JOB_ID")),
            locked: true,
        }
    }

    /// Whether it is on the machine of another, since that was switched on. Clones of a machine can share the name of
    /// the boot, so the host's name must be the same too.
    fn is_beside(&self, other: &Self) -> bool {
        self.boot.is_some() && (&self.boot, &self.host) == (&other.boot, &other.host)
    }
}

/// What a lock is taken with; another one only in tests.
type TryLock = fn(&File) -> Result<(), TryLockError>;

/// The claims in one folder.
#[derive(Debug)]
pub(crate) struct Claims {
    folder: PathBuf,
    owner: Owner,
    stale: Duration,
    try_lock: TryLock,
    try_lock_shared: TryLock,
    /// When the claim of another machine was last seen to change, and its time stamp then.
    seen: Mutex<HashMap<PathBuf, (SystemTime, Instant)>>,
}

/// A cell that is ours until this is dropped or given back.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    name: String,
    number: u32,
    file: File,
}

impl Claims {
    pub(crate) fn new(folder: &Path) -> Self {
        Self::with_owner(folder, Owner::current(), STALE)
    }

    fn with_owner(folder: &Path, owner: Owner, stale: Duration) -> Self {
        let (try_lock, try_lock_shared) = (File::try_lock, File::try_lock_shared);
        let (folder, seen) = (folder.to_owned(), Mutex::default());
        Self { folder, owner, stale, try_lock, try_lock_shared, seen }
    }

    /// The highest claim of every cell, from one look at the folder.
    pub(crate) fn listing(&self) -> anyhow::Result<HashMap<String, u32>> {
        let mut highest = HashMap::new();
        for file in self.files()? {
            let Some((name, number)) = file.rsplit_once(CLAIM) else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            let entry = highest.entry(name.to_owned()).or_insert(number);
            *entry = number.max(*entry);
        }
        Ok(highest)
    }

    /// Claims a cell, given its highest claim as listed, or 0; `None` if another process has it, or a higher one.
    pub(crate) fn claim_after(
        &self,
        name: &str,
        highest: u32,
    ) -> anyhow::Result<Option<Claim<'_>>> {
        // The dead claim stays locked until ours is there.
        let dead = match highest {
            0 => None,
            number => match self.lock_dead(&self.path(name, number))? {
                Some(file) => Some(file),
                None => return Ok(None),
            },
        };
        let number = highest + 1;
        let path = self.path(name, number);
        let context = || format!("could not write the claim {}", path.display());
        let mut file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path)
        {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(error).with_context(context),
        };
        // Nobody locks a claim without an owner unless it was left alone for long; who did holds a higher number.
        let locked = match (self.try_lock)(&file) {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) if files::has_no_locks(&error) => false,
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs());
        let owner = Owner { since, locked, ..self.owner.clone() };
        file.write_all(&serde_json::to_vec(&owner)?).with_context(context)?;
        // Other machines see what is on the server.
        file.sync_all().with_context(context)?;
        drop(dead);
        let claim = Claim { claims: self, name: name.to_owned(), number, file };
        Ok(claim.is_highest().with_context(context)?.then_some(claim))
    }

    #[cfg(test)]
    fn claim(&self, name: &str) -> anyhow::Result<Option<Claim<'_>>> {
        self.claim_after(name, self.listing()?.get(name).copied().unwrap_or(0))
    }

    fn path(&self, name: &str, number: u32) -> PathBuf {
        self.folder.join(format!("{name}{CLAIM}{number:04}"))
    }

    fn files(&self) -> anyhow::Result<Vec<String>> {
        let entries = fs::read_dir(&self.folder)
            .with_context(|| format!("could not read the folder {}", self.folder.display()))?;
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    /// Takes the lock of a claim if nobody holds it any more; `None` if it is alive, or gone.
    fn lock_dead(&self, path: &Path) -> anyhow::Result<Option<File>> {
        let dead = self.try_lock_dead(path);
        match dead {
            // Another machine has replaced it.
            Err(error) if files::is_gone(&error) => Ok(None),
            dead => dead.with_context(|| format!("could not read the claim {}", path.display())),
        }
    }

    fn try_lock_dead(&self, path: &Path) -> io::Result<Option<File>> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        // Unlocked, so that its owner is not disturbed between the creation and the lock.
        if read(&mut file)?.is_empty() && !self.is_left(path, &file)? {
            return Ok(None);
        }
        let locked = match (self.try_lock)(&file) {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) if files::has_no_locks(&error) => false,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        let text = read(&mut file)?;
        // A lock on a file that was removed in the meantime says nothing about the one in its place.
        if !is_still_at(&file, path) {
            return Ok(None);
        }
        let owner: Option<Owner> = serde_json::from_str(&text).ok();
        let shows = owner.is_some_and(|owner| owner.locked && owner.is_beside(&self.owner));
        let dead = text == GIVEN_BACK || (locked && shows) || self.is_left(path, &file)?;
        Ok(dead.then_some(file))
    }

    /// Whether the highest claim of a cell was given back or left; nothing is taken.
    pub(crate) fn is_dead(&self, name: &str, highest: u32) -> anyhow::Result<bool> {
        Ok(self.lock_dead(&self.path(name, highest))?.is_some())
    }

    /// For people: who holds a cell at the moment, and for how long its claim has not been touched; nothing is taken or changed.
    pub(crate) fn holder(&self, name: &str, highest: u32) -> Option<(Owner, Duration)> {
        let mut file = File::open(self.path(name, highest)).ok()?;
        let owner: Owner = serde_json::from_str(&read(&mut file).ok()?).ok()?;
        let silence = file.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
        // Shared: of two who only look, each sees the owner and not the other.
        let shows = owner.locked && owner.is_beside(&self.owner);
        let lock = if shows { (self.try_lock_shared)(&file) } else { Ok(()) };
        let is_held = match lock {
            Ok(()) if shows => false,
            Err(TryLockError::WouldBlock) => true,
            // Elsewhere, or where there are no locks at the moment.
            Ok(()) | Err(TryLockError::Error(_)) => silence < self.stale,
        };
        is_held.then_some((owner, silence))
    }

    /// Whether a claim has not been touched for long, on our own clock.
    fn is_left(&self, path: &Path, file: &File) -> io::Result<bool> {
        let touched = file.metadata()?.modified()?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = seen.entry(path.to_owned()).or_insert_with(|| (touched, Instant::now()));
        if entry.0 != touched {
            *entry = (touched, Instant::now());
        }
        Ok(entry.1.elapsed() >= self.stale)
    }
}

/// The whole text of a claim.
fn read(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// What is between the name of a cell and the number of a claim.
const CLAIM: &str = ".claim-";

/// What a claim says after its owner gave the cell back.
const GIVEN_BACK: &str = "given back\n";

impl Claim<'_> {
    /// The lock, for the process that trains: the claim is alive as long as this or the copy is open.
    pub(crate) fn lock(&self) -> anyhow::Result<File> {
        self.file.try_clone().context("could not copy the lock of a claim")
    }

    /// Shows other machines that we are alive; `false` if one of them took the cell all the same, after
    /// we had been silent for long.
    pub(crate) fn touch(&self) -> anyhow::Result<bool> {
        self.file.set_modified(SystemTime::now()).context("could not touch a claim")?;
        self.is_highest().with_context(|| format!("could not read the claims of {}", self.name))
    }

    /// Whether the claim is still there, and nobody has made the next one.
    fn is_highest(&self) -> io::Result<bool> {
        let next = self.claims.path(&self.name, self.number + 1);
        Ok(!next.try_exists()?
            && is_still_at(&self.file, &self.claims.path(&self.name, self.number)))
    }

    /// Gives the cell back. If it is done or failed, the files that say so must be written: who claims it
    /// from now on looks at them first. The file stays, so that its number is never used again.
    pub(crate) fn give_back(mut self) -> anyhow::Result<()> {
        match self.write_given_back() {
            // Somebody has removed the folder.
            Err(error) if files::is_gone(&error) => Ok(()),
            written => {
                written.with_context(|| format!("could not give back the claim of {}", self.name))
            }
        }
    }

    /// In this order it is never empty, which would look like a claim that is being made.
    fn write_given_back(&mut self) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(GIVEN_BACK.as_bytes())?;
        self.file.set_len(GIVEN_BACK.len() as u64)
    }
}

#[cfg(unix)]
fn is_still_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (there, ours) = (fs::metadata(path).map(identity), file.metadata().map(identity));
    there.is_ok_and(|there| ours.is_ok_and(|ours| ours == there))
}

#[cfg(not(unix))]
fn is_still_at(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn owner(host: &str) -> Owner {
        let text = |text: &str| Some(text.to_owned());
        Owner { pid: 1, host: text(host), boot: text(host), since: None, job: None, locked: true }
    }

    #[test]
    fn a_claim_is_held_until_it_is_dropped_or_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (Claims::new(folder.path()), Claims::new(folder.path()));
        let claim = first.claim("cell").unwrap().unwrap();
        assert!(second.claim("cell").unwrap().is_none());
        assert!(second.claim("cell-2").unwrap().is_some(), "another cell");
        drop(claim);
        // As after a crash: the file is there, its lock is not.
        let claim = second.claim("cell").unwrap().expect("recovered");
        assert_eq!(claim.number, 2);
        claim.give_back().unwrap();
        let claim = first.claim("cell").unwrap().unwrap();
        assert!(claim.touch().unwrap());
        claim.give_back().unwrap();
        assert_eq!(first.listing().unwrap()["cell"], 3);
    }

    #[test]
    fn the_lock_outlives_the_claim_in_the_hands_of_the_process_that_trains() {
        let folder = tempfile::tempdir().unwrap();
        let claims = Claims::new(folder.path());
        let claim = claims.claim("cell").unwrap().unwrap();
        let child = claim.lock().unwrap();
        drop(claim);
        assert!(claims.claim("cell").unwrap().is_none());
        drop(child);
        assert!(claims.claim("cell").unwrap().is_some());
    }

    #[test]
    fn the_claim_of_another_machine_is_dead_only_after_a_long_silence() {
        let folder = tempfile::tempdir().unwrap();
        let stale = Duration::from_millis(200);
        let there = Claims::with_owner(folder.path(), owner("there"), stale);
        let here = Claims::with_owner(folder.path(), owner("here"), stale);
        let claim = there.claim("cell").unwrap().unwrap();
        // Its lock is not seen here, as on a network file system without locks.
        claim.file.unlock().unwrap();
        for _ in 0..10 {
            assert!(claim.touch().unwrap());
            assert!(here.claim("cell").unwrap().is_none(), "it is touched");
            std::thread::sleep(stale / 4);
        }
        std::thread::sleep(stale);
        let taken = here.claim("cell").unwrap().expect("it was left alone");
        assert!(!claim.touch().unwrap(), "the owner sees that it lost the cell");
        assert!(taken.touch().unwrap());
    }

    #[test]
    fn a_clone_of_this_machine_is_another_machine() {
        let folder = tempfile::tempdir().unwrap();
        let clone = |host: &str| {
            let owner = Owner { boot: Some("one image".to_owned()), ..owner(host) };
            Claims::with_owner(folder.path(), owner, STALE)
        };
        let (one, two) = (clone("one"), clone("two"));
        let claim = one.claim("cell").unwrap().unwrap();
        claim.file.unlock().unwrap();
        assert!(two.claim("cell").unwrap().is_none(), "its lock could be taken here");
        assert!(clone("one").claim("cell").unwrap().is_some(), "that of the same machine is dead");
    }

    #[test]
    fn a_claim_without_an_owner_is_being_made_until_it_was_left_alone_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let stale = Duration::from_millis(200);
        let claims = Claims::with_owner(folder.path(), owner("here"), stale);
        // As another machine sees it between the creation and the owner's name.
        File::create(folder.path().join("cell.claim-0001")).unwrap();
        assert!(claims.claim("cell").unwrap().is_none());
        std::thread::sleep(stale);
        assert_eq!(claims.claim("cell").unwrap().expect("it died there").number, 2);
    }

    /// Machines that claim cells of one folder at once, with locks that one machine does not see of another: how often
    /// a cell was taken twice.
    fn taken_twice(cells: u32, try_lock: TryLock) -> u32 {
        let folder = tempfile::tempdir().unwrap();
        let taken: Vec<AtomicU32> = (0..cells).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for machine in 0..8 {
                let (taken, folder) = (&taken, folder.path());
                scope.spawn(move || {
                    let owner = owner(&machine.to_string());
                    let mut claims = Claims::with_owner(folder, owner, STALE);
                    claims.try_lock = try_lock;
                    for (number, taken) in taken.iter().enumerate() {
                        if let Some(claim) = claims.claim(&format!("cell-{number}")).unwrap() {
                            taken.fetch_add(1, Ordering::SeqCst);
                            assert!(claim.touch().unwrap());
                        }
                    }
                });
            }
        });
        assert!(taken.iter().all(|taken| taken.load(Ordering::SeqCst) > 0), "all were taken");
        taken.iter().filter(|taken| taken.load(Ordering::SeqCst) > 1).count() as u32
    }

    #[test]
    fn where_locks_lie_or_are_missing_no_cell_is_taken_twice() {
        assert_eq!(taken_twice(300, |_| Ok(())), 0, "every lock can be taken");
        #[cfg(target_os = "linux")]
        {
            assert_eq!(taken_twice(100, no_lock), 0, "the file system has none");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_claim_that_went_stale_is_gone_and_no_reason_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut claims = Claims::with_owner(folder.path(), owner("here"), STALE);
        drop(claims.claim("cell").unwrap().unwrap());
        claims.try_lock = |_| Err(TryLockError::Error(io::Error::from_raw_os_error(116)));
        assert!(claims.claim("cell").unwrap().is_none());
    }

    #[test]
    fn who_looks_sees_the_holder_and_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let claims = Claims::new(folder.path());
        let claim = claims.claim("cell").unwrap().unwrap();
        let listing = claims.listing().unwrap();
        assert_eq!(listing, HashMap::from([("cell".to_owned(), 1)]));
        let (holder, _) = claims.holder("cell", 1).unwrap();
        assert_eq!((holder.pid, holder.since.is_some()), (std::process::id(), true));
        assert!(claim.touch().unwrap());
        drop(claim);
        assert!(cfg!(not(target_os = "linux")) || claims.holder("cell", 1).is_none(), "it is dead");
        assert_eq!(claims.claim("cell").unwrap().unwrap().number, 2);
    }

    /// As a server that is without locks for a moment says it.
    #[cfg(target_os = "linux")]
    fn no_lock(_: &File) -> Result<(), TryLockError> {
        Err(TryLockError::Error(io::Error::from_raw_os_error(37)))
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_lock_that_was_not_given_shows_nothing_once_there_are_locks_again() {
        let folder = tempfile::tempdir().unwrap();
        let stale = Duration::from_millis(200);
        let mut without = Claims::with_owner(folder.path(), owner("here"), stale);
        without.try_lock = no_lock;
        let claim = without.claim("cell").unwrap().unwrap();
        let with = Claims::with_owner(folder.path(), owner("here"), stale);
        for _ in 0..10 {
            assert!(claim.touch().unwrap());
            assert!(with.claim("cell").unwrap().is_none(), "it is touched");
            assert!(with.holder("cell", 1).is_some(), "and is seen to be");
            std::thread::sleep(stale / 4);
        }
        std::thread::sleep(stale);
        assert!(with.holder("cell", 1).is_none() && with.claim("cell").unwrap().is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn who_looks_goes_by_the_silence_where_there_are_no_locks() {
        let folder = tempfile::tempdir().unwrap();
        let stale = Duration::from_millis(200);
        let claims = Claims::with_owner(folder.path(), owner("here"), stale);
        let claim = claims.claim("cell").unwrap().unwrap();
        let mut looking = Claims::with_owner(folder.path(), owner("here"), stale);
        looking.try_lock_shared = no_lock;
        assert!(looking.holder("cell", 1).is_some(), "running");
        std::thread::sleep(2 * stale);
        assert!(looking.holder("cell", 1).is_none(), "left alone");
        assert!(claim.touch().unwrap() && looking.holder("cell", 1).is_some(), "and back");
    }

    #[test]
    fn who_comes_late_with_an_old_number_gets_no_cell() {
        let folder = tempfile::tempdir().unwrap();
        let claims = Claims::new(folder.path());
        for _ in 0..3 {
            claims.claim("cell").unwrap().unwrap().give_back().unwrap();
        }
        let claim = claims.claim("cell").unwrap().unwrap();
        for late in 0..4 {
            assert!(Claims::new(folder.path()).claim_after("cell", late).unwrap().is_none());
        }
        assert!(claim.touch().unwrap());
    }

    #[test]
    fn of_many_that_find_a_dead_claim_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let holders = AtomicU32::new(0);
        let (rounds, wins) = (200, AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (holders, wins, folder) = (&holders, &wins, folder.path());
                scope.spawn(move || {
                    let claims = Claims::new(folder);
                    for round in 0..rounds {
                        let Some(claim) = claims.claim("cell").unwrap() else { continue };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                        wins.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::SeqCst);
                        match (round + thread) % 2 {
                            0 => drop(claim),
                            _ => claim.give_back().unwrap(),
                        }
                    }
                });
            }
        });
        // How often depends on who is given the processor; that it goes on does not.
        assert!(wins.load(Ordering::SeqCst) > 0);
        assert!(Claims::new(folder.path()).claim("cell").unwrap().is_some());
    }
}
