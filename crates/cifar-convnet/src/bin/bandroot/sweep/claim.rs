//! Claims: which process runs which cell, on a folder that many processes share.
//!
//! The claims of a cell are numbered files, `NAME.claim-0001`, `NAME.claim-0002`, ...; the highest number
//! holds the cell. A claim is made by creating the next number, which the file system lets one process
//! do (`O_EXCL`), and only after the claim before it was found dead. Numbers are never used again, so that two processes that find the same dead claim cannot both replace it, and a
//! late one cannot throw out the claim of the one that was first.
//!
//! Who is alive:
//!
//! * A claim is held under a file lock, which the process that trains inherits as its standard input. The
//!   system drops the lock when both are gone, however they ended: a claim of this boot of this
//!   machine is dead if and only if its lock can be taken. No process number is looked up, so none can be mistaken
//!   for another's.
//! * A claim of another machine is dead if besides its file has not been touched for [`STALE`], on
//!   the clock of who waits. Its owner touches it every [`HEARTBEAT`] and gives up if a higher number is there.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// How often a claim is touched.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// How long the claim of another machine must have been left alone to count as dead.
pub(crate) const STALE: Duration = Duration::from_secs(180);

/// Who holds a claim, for the rules above and for people who look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    host: Option<String>,
    /// The boot of the machine, all over the world.
    boot: Option<String>,
}

impl Owner {
    fn current() -> Self {
        let system = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
            Some(text.trim().to_owned())
        };
        Self { pid: std::process::id(), host: system("hostname"), boot: system("random/boot_id") }
    }
}

/// The claims in one folder.
#[derive(Debug)]
pub(crate) struct Claims {
    folder: PathBuf,
    owner: Owner,
    stale: Duration,
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
        Self { folder: folder.to_owned(), owner, stale, seen: Mutex::default() }
    }

    /// Claims a cell; `None` if another process has it.
    pub(crate) fn claim(&self, name: &str) -> anyhow::Result<Option<Claim<'_>>> {
        let highest = self.highest(name)?;
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
        // Between the creation and the lock it looks dead; who took it then holds a higher number.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        }
        file.write_all(&serde_json::to_vec(&self.owner)?).with_context(context)?;
        drop(dead);
        if self.highest(name)? != number {
            return Ok(None);
        }
        Ok(Some(Claim { claims: self, name: name.to_owned(), number, file }))
    }

    fn path(&self, name: &str, number: u32) -> PathBuf {
        self.folder.join(format!("{name}.claim-{number:04}"))
    }

    /// The highest number; 0 if there is no claim.
    fn highest(&self, name: &str) -> anyhow::Result<u32> {
        Ok(self.numbers(name)?.into_iter().max().unwrap_or(0))
    }

    fn numbers(&self, name: &str) -> anyhow::Result<Vec<u32>> {
        let entries = fs::read_dir(&self.folder)
            .with_context(|| format!("could not read the folder {}", self.folder.display()))?;
        let mut numbers = Vec::new();
        for entry in entries {
            let file = entry?.file_name();
            let number = file.to_str().and_then(|file| file.strip_prefix(name));
            let number = number.and_then(|rest| rest.strip_prefix(".claim-"));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        Ok(numbers)
    }

    /// Takes the lock of a claim if nobody holds it any more; `None` if it is alive, or gone.
    fn lock_dead(&self, path: &Path) -> anyhow::Result<Option<File>> {
        let context = || format!("could not read the claim {}", path.display());
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(context),
        };
        let locked = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => false,
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        };
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(context)?;
        // A lock on a file that was removed in the meantime says nothing about the one in its place.
        if !is_still_at(&file, path) {
            return Ok(None);
        }
        let owner: Option<Owner> = serde_json::from_str(&text).ok();
        let given_back = text == GIVEN_BACK;
        let here =
            owner.is_some_and(|owner| owner.boot == self.owner.boot) && self.owner.boot.is_some();
        // Where locks work, an unwritten claim is that of a process that died just there, or that will see
        // that it came second.
        let dead =
            given_back || (locked && (here || text.is_empty())) || self.is_left(path, &file)?;
        Ok(dead.then_some(file))
    }

    /// Whether a claim has not been touched for long, on our own clock.
    fn is_left(&self, path: &Path, file: &File) -> anyhow::Result<bool> {
        let touched = file.metadata()?.modified()?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = seen.entry(path.to_owned()).or_insert_with(|| (touched, Instant::now()));
        if entry.0 != touched {
            *entry = (touched, Instant::now());
        }
        Ok(entry.1.elapsed() >= self.stale)
    }
}

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
        Ok(self.claims.highest(&self.name)? == self.number)
    }

    /// Gives the cell back. If it is done or failed, the files that say so must be written: who claims it
    /// from now on looks at them first. The file stays, so that its number is never used again.
    pub(crate) fn give_back(mut self) -> anyhow::Result<()> {
        let context = || format!("could not give back the claim of {}", self.name);
        for number in self.claims.numbers(&self.name)?.into_iter().filter(|&n| n < self.number) {
            match fs::remove_file(self.claims.path(&self.name, number)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(context);
                }
                _ => {}
            }
        }
        self.file.set_len(0).with_context(context)?;
        self.file.rewind().with_context(context)?;
        let written = self.file.write_all(GIVEN_BACK.as_bytes());
        written.with_context(|| format!("could not give back the claim of {}", self.name))
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
        assert_eq!(first.numbers("cell").unwrap(), [3], "one file is left");
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
        let owner = |boot: &str| Owner { pid: 1, host: None, boot: Some(boot.to_owned()) };
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
