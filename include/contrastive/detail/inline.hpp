// What is to be inlined, and what is not.
#ifndef CONTRASTIVE_DETAIL_INLINE_HPP
#define CONTRASTIVE_DETAIL_INLINE_HPP

#if defined(_MSC_VER)
#define CONTRASTIVE_INLINE __forceinline
#define CONTRASTIVE_NOINLINE __declspec(noinline)
#else
#define CONTRASTIVE_INLINE inline __attribute__((always_inline))
#define CONTRASTIVE_NOINLINE __attribute__((noinline))
#endif

#endif  // CONTRASTIVE_DETAIL_INLINE_HPP
