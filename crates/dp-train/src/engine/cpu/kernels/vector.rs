//! Some floats at once, and kernels compiled once per instruction set.

/// The instruction set that kernels run with, found when the program runs.
///
/// Those of x86 can only be had on a CPU that has them: kernels rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Isa {
    pub(in crate::engine::cpu) set: Set,
}

/// What an [`Isa`] stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::cpu) enum Set {
    /// Plain Rust, on any CPU.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 besides: twice the floats in twice the registers.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The best that this CPU has.
    pub(crate) fn detect() -> Self {
        Self::all()[0]
    }

    /// Plain Rust, on any CPU.
    pub(crate) fn portable() -> Self {
        Self { set: Set::Portable }
    }

    /// Those that this CPU has, best first.
    pub(crate) fn all() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut sets = vec![Set::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            sets.insert(0, Set::Avx2);
            if is_x86_feature_detected!("avx512f") {
                sets.insert(0, Set::Avx512);
            }
        }
        sets.into_iter().map(|set| Self { set }).collect()
    }

    /// Its name for reports.
    pub(crate) fn name(self) -> &'static str {
        match self.set {
            Set::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "AVX2 and FMA",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "AVX-512",
        }
    }

    /// The name of all that give the same bits: every float of a wider register goes the same way.
    pub(crate) fn arithmetic(self) -> &'static str {
        match self.set {
            Set::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 | Set::Avx512 => "AVX2 and FMA",
        }
    }
}

/// [`LANES`](Vector::LANES) floats.
///
/// # Safety
/// Loads and stores touch that many floats at the pointer, which must be valid for it; no alignment is
/// needed. An implementation for an instruction set may only be used inside a function that enables
/// it, which [`kernel!`] sees to.
pub(crate) trait Vector: Copy {
    /// Floats in it: 8 or 16.
    const LANES: usize;
    /// Rows of two of them that fit into the registers beside what they are made of.
    const ROWS: usize;

    /// The same number in all of it.
    fn splat(x: f32) -> Self;
    /// Reads so many floats.
    unsafe fn load(at: *const f32) -> Self;
    /// Writes so many floats.
    unsafe fn store(self, at: *mut f32);
    /// `self + b`.
    fn add(self, b: Self) -> Self;
    /// `self - b`.
    fn sub(self, b: Self) -> Self;
    /// `self * b`.
    fn mul(self, b: Self) -> Self;
    /// `self * b + c`, with one rounding where the CPU can.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// `c` where `self == b`, zero elsewhere.
    fn where_equal(self, b: Self, c: Self) -> Self;
    /// `c` where `self > 0`, zero elsewhere.
    fn where_positive(self, c: Self) -> Self;
    /// Zero where `self < 0`. NaN stays NaN.
    fn relu(self) -> Self;
}

/// Eight floats in an array, which compilers keep in the registers of the target.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; 8]);

impl Portable {
    #[inline(always)]
    fn zip(self, b: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], b.0[i])))
    }
}

impl Vector for Portable {
    const LANES: usize = 8;
    const ROWS: usize = 6;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; 8])
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller vouches for eight floats.
        Self(unsafe { at.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller vouches for eight floats.
        unsafe { at.cast::<[f32; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.zip(b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.zip(b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.zip(b, |x, y| x * y)
    }
    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        // Without the instruction, a fused multiply-add would be a slow call into the C library.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
            Self(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
        } else {
            self.mul(b).add(c)
        }
    }
    #[inline(always)]
    fn where_equal(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| if self.0[i] == b.0[i] { c.0[i] } else { 0.0 }))
    }
    #[inline(always)]
    fn where_positive(self, c: Self) -> Self {
        self.zip(c, |x, c| if x > 0.0 { c } else { 0.0 })
    }
    #[inline(always)]
    fn relu(self) -> Self {
        Self(std::array::from_fn(|i| if self.0[i] < 0.0 { 0.0 } else { self.0[i] }))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Vector;

    /// Eight floats in an AVX register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256);

    // SAFETY, for every block here: `kernel!` uses this type only inside functions that enable AVX2
    // and FMA; pointers are the caller's promise.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl Vector for Avx2 {
        const LANES: usize = 8;
        // 12 accumulators, 2 vectors and a number in all lanes: 15 of 16 registers.
        const ROWS: usize = 6;

        #[inline(always)]
        fn splat(x: f32) -> Self {
            Self(unsafe { _mm256_set1_ps(x) })
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            Self(unsafe { _mm256_loadu_ps(at) })
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            unsafe { _mm256_storeu_ps(at, self.0) }
        }
        #[inline(always)]
        fn add(self, b: Self) -> Self {
            Self(unsafe { _mm256_add_ps(self.0, b.0) })
        }
        #[inline(always)]
        fn sub(self, b: Self) -> Self {
            Self(unsafe { _mm256_sub_ps(self.0, b.0) })
        }
        #[inline(always)]
        fn mul(self, b: Self) -> Self {
            Self(unsafe { _mm256_mul_ps(self.0, b.0) })
        }
        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            Self(unsafe { _mm256_fmadd_ps(self.0, b.0, c.0) })
        }
        #[inline(always)]
        fn where_equal(self, b: Self, c: Self) -> Self {
            Self(unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, b.0), c.0) })
        }
        #[inline(always)]
        fn where_positive(self, c: Self) -> Self {
            let zero = unsafe { _mm256_setzero_ps() };
            Self(unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.0, zero), c.0) })
        }
        #[inline(always)]
        fn relu(self) -> Self {
            // The second operand is taken if one is not a number.
            Self(unsafe { _mm256_max_ps(_mm256_setzero_ps(), self.0) })
        }
    }

    /// Sixteen floats in an AVX-512 register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    // SAFETY, for every block here: `kernel!` uses this type only inside functions that enable AVX-512's
    // foundation; pointers are the caller's promise.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl Vector for Avx512 {
        const LANES: usize = 16;
        // 24 accumulators, 2 vectors and a number in all lanes: 27 of 32 registers.
        const ROWS: usize = 12;

        #[inline(always)]
        fn splat(x: f32) -> Self {
            Self(unsafe { _mm512_set1_ps(x) })
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            Self(unsafe { _mm512_loadu_ps(at) })
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            unsafe { _mm512_storeu_ps(at, self.0) }
        }
        #[inline(always)]
        fn add(self, b: Self) -> Self {
            Self(unsafe { _mm512_add_ps(self.0, b.0) })
        }
        #[inline(always)]
        fn sub(self, b: Self) -> Self {
            Self(unsafe { _mm512_sub_ps(self.0, b.0) })
        }
        #[inline(always)]
        fn mul(self, b: Self) -> Self {
            Self(unsafe { _mm512_mul_ps(self.0, b.0) })
        }
        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
        }
        #[inline(always)]
        fn where_equal(self, b: Self, c: Self) -> Self {
            let equal = unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, b.0) };
            Self(unsafe { _mm512_maskz_mov_ps(equal, c.0) })
        }
        #[inline(always)]
        fn where_positive(self, c: Self) -> Self {
            let zero = unsafe { _mm512_setzero_ps() };
            let positive = unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, zero) };
            Self(unsafe { _mm512_maskz_mov_ps(positive, c.0) })
        }
        #[inline(always)]
        fn relu(self) -> Self {
            // The second operand is taken if one is not a number.
            Self(unsafe { _mm512_max_ps(_mm512_setzero_ps(), self.0) })
        }
    }
}

/// A function that is compiled for every instruction set and picks one by its first argument.
///
/// What the body calls must be `#[inline(always)]`, or it is compiled for the plain target.
macro_rules! kernel {
    (
        $(#[$attribute:meta])*
        $vis:vis fn $name:ident<$v:ident>($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$attribute])*
        $vis fn $name(isa: $crate::engine::cpu::kernels::vector::Isa, $($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::extra_unused_type_parameters)]
            fn body<$v: $crate::engine::cpu::kernels::vector::Vector>($($arg: $type),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) $(-> $ret)? {
                body::<$crate::engine::cpu::kernels::vector::Avx2>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma")]
            fn avx512($($arg: $type),*) $(-> $ret)? {
                body::<$crate::engine::cpu::kernels::vector::Avx512>($($arg),*)
            }

            use $crate::engine::cpu::kernels::vector::Set;
            match isa.set {
                Set::Portable => body::<$crate::engine::cpu::kernels::vector::Portable>($($arg),*),
                // SAFETY: `Isa::all` found both features.
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: `Isa::all` found all three.
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use kernel;
