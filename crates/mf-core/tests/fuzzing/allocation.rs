//! What one input allocates, counted by the allocator of the test program, thread by thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocations of this thread since the last [`measure`] began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Allocated {
    /// The largest single one, in bytes.
    pub(crate) largest: usize,
    /// The most that was there at a time.
    pub(crate) peak: usize,
}

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    // Below zero where something from before is freed.
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static INPUT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Runs `work` and says what it allocated. Threads that it starts are not counted.
pub(crate) fn measure<T>(seed: u64, index: u64, work: impl FnOnce() -> T) -> (T, Allocated) {
    LARGEST.set(0);
    NOW.set(0);
    PEAK.set(0);
    INPUT.set((seed, index));
    let result = work();
    (result, Allocated { largest: LARGEST.get(), peak: PEAK.get().max(0) as usize })
}

struct Counting;

fn count(freed: usize, taken: usize) {
    // A thread that is ending has no counters any more, and nobody asks for them.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(taken)));
    let _ = NOW.try_with(|now| {
        now.set(now.get() + taken as isize - freed as isize);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

/// The program ends after this, and no assertion can say why.
fn refused(size: usize) {
    let (seed, index) = INPUT.try_with(Cell::get).unwrap_or_default();
    eprintln!("no memory for {size} bytes; the last input was seed {seed}, index {index}");
}

// SAFETY: every call goes to the allocator of the system with the arguments of the caller; the counters
// are plain numbers that allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: the caller's promise is that of this function.
        let place = unsafe { System.alloc(layout) };
        if place.is_null() {
            refused(layout.size());
        }
        place
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: as above.
        let place = unsafe { System.alloc_zeroed(layout) };
        if place.is_null() {
            refused(layout.size());
        }
        place
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), size);
        // SAFETY: as above.
        let place = unsafe { System.realloc(place, layout, size) };
        if place.is_null() {
            refused(size);
        }
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
