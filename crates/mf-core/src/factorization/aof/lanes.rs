//! Fixed-width lane arithmetic that the compiler turns into vector instructions.
//!
//! A kernel is written once, generic over `FUSED`, and compiled twice: portable, and inside a
//! `#[target_feature(enable = "avx2,fma")]` wrapper chosen at run time by [`fused`]. A binary built
//! for plain x86-64 therefore runs at AVX2 speed where the processor has it.

/// Four doubles, one AVX2 register.
pub(super) type Quad = [f64; 4];
/// Eight singles, one AVX2 register.
pub(super) type Octet = [f32; 8];

/// `a * b + c`; a single rounding only where the instruction exists, since `mul_add` is otherwise a
/// library call.
#[inline(always)]
pub(super) fn fma<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED || cfg!(target_arch = "aarch64") { a.mul_add(b, c) } else { a * b + c }
}

/// `acc += a * x` lane by lane.
#[inline(always)]
pub(super) fn axpy<const FUSED: bool>(a: f64, x: Quad, mut acc: Quad) -> Quad {
    for t in 0..4 {
        acc[t] = fma::<FUSED>(a, x[t], acc[t]);
    }
    acc
}

/// `acc += x * y` lane by lane.
#[inline(always)]
pub(super) fn dot<const FUSED: bool>(x: Quad, y: Quad, mut acc: Quad) -> Quad {
    for t in 0..4 {
        acc[t] = fma::<FUSED>(x[t], y[t], acc[t]);
    }
    acc
}

/// `acc += a * x` lane by lane in single precision.
#[inline(always)]
pub(super) fn axpy_single<const FUSED: bool>(a: f32, x: Octet, mut acc: Octet) -> Octet {
    for t in 0..8 {
        acc[t] = if FUSED || cfg!(target_arch = "aarch64") {
            a.mul_add(x[t], acc[t])
        } else {
            a * x[t] + acc[t]
        };
    }
    acc
}

/// `acc += x * y` lane by lane in single precision.
#[inline(always)]
pub(super) fn multiply_add<const FUSED: bool>(x: &Octet, y: &Octet, mut acc: Octet) -> Octet {
    for t in 0..8 {
        acc[t] = if FUSED || cfg!(target_arch = "aarch64") {
            x[t].mul_add(y[t], acc[t])
        } else {
            x[t] * y[t] + acc[t]
        };
    }
    acc
}

/// The sum of the lanes.
#[inline(always)]
pub(super) fn total(x: Quad) -> f64 {
    (x[0] + x[2]) + (x[1] + x[3])
}

/// The four elements of `slice` from `at` on.
#[inline(always)]
pub(super) fn load(slice: &[f64], at: usize) -> Quad {
    let s = &slice[at..at + 4];
    [s[0], s[1], s[2], s[3]]
}

#[inline(always)]
pub(super) fn store(slice: &mut [f64], at: usize, value: Quad) {
    slice[at..at + 4].copy_from_slice(&value);
}

/// Whether the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn fused() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// Defines `fn $name($args)` that runs `$body::<true>` compiled for AVX2 and FMA where available,
/// `$body::<false>` elsewhere.
macro_rules! dispatched {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[allow(clippy::too_many_arguments)]
                #[target_feature(enable = "avx2,fma")]
                fn vectorized($($arg: $ty),*) $(-> $ret)? {
                    $body::<true>($($arg),*)
                }
                if $crate::factorization::aof::lanes::fused() {
                    // SAFETY: `fused` has just confirmed that this processor has AVX2 and FMA.
                    return unsafe { vectorized($($arg),*) };
                }
            }
            $body::<false>($($arg),*)
        }
    };
}
pub(super) use dispatched;
