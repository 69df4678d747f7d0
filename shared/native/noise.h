/* Discrete Gaussian noise: which proposals are accepted. The definition is secemb_shared/privacy/gaussian.py.
 *
 * Only integers, no table lookup that depends on a secret and no branch on one. Plain C: it needs no AES, so one copy
 * serves every instruction set. The time of a call reveals only how many proposals there were.
 */
#ifndef SECEMB_NOISE_H
#define SECEMB_NOISE_H

#include <stddef.h>
#include <stdint.h>

enum { NOISE_POINT = 50, NOISE_STEPS = 57, NOISE_BITS = 40, NOISE_TERMS = 18 };
enum { NOISE_REJECTED = 0, NOISE_ACCEPTED = 1, NOISE_UNDECIDED = 2 };

/* Where the curve lies: X = (V + U / 2^bits) · 2^bits has weight 2^-z, z = slope · (X / 2^bits)² + start - V. */
typedef struct {
    int bits;
    uint64_t slope; /* in units of 2^-64 */
    uint64_t start; /* in units of 2^-50 */
} envelope_t;

/* ln(2)^j / j! in units of 2^-63. */
static const uint64_t noise_terms[NOISE_TERMS] = {
    0x8000000000000000, 0x58b90bfbe8e7bcd5, 0x1ebfbdff82c58ea8, 0x071ac235c1282fe2, 0x013b2ab6fba4e772,
    0x002bb0ffcf14ce62, 0x00050c244be1b1e1, 0x00007ff2ff1622c3, 0x00000b160111d2e4, 0x000000da929e9caf,
    0x0000000f267a8ac5, 0x00000000f465639a, 0x000000000e1deb28, 0x0000000000c0b0c9, 0x0000000000098a4b,
    0x00000000000070db, 0x00000000000004e3, 0x0000000000000033};

static inline uint64_t high_half(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }

/* 2^-z in units of 2^-63, for z ≥ 0 in units of 2^-50. */
static inline uint64_t noise_power(uint64_t z) {
    const uint64_t rest = z << (64 - NOISE_POINT), whole = z >> NOISE_POINT;
    uint64_t sum = noise_terms[NOISE_TERMS - 1];
    for (int j = NOISE_TERMS - 2; j >= 0; j--) sum = noise_terms[j] - high_half(rest, sum);
    return sum >> (whole < 63 ? whole : 63);
}

/* Judge `count` proposals of two words each: the chance, and the proposed value. */
static void judge_proposals(const uint64_t *words, size_t count, envelope_t e, int64_t *values, uint8_t *verdicts) {
    const uint64_t margin = (uint64_t)1 << 16, below = ((uint64_t)1 << e.bits) - 1;
    for (size_t i = 0; i < count; i++) {
        const uint64_t chance = words[2 * i] >> 1, drawn = words[2 * i + 1];
        const uint64_t run = drawn >> (e.bits + 1), negative = (drawn >> e.bits) & 1;
        const uint64_t halvings = (uint64_t)__builtin_ctzll(run | (uint64_t)1 << 62);
        const uint64_t size = (halvings << e.bits) + (drawn & below);
        const uint64_t scaled = size << (NOISE_STEPS - e.bits);
        const int64_t z = (int64_t)(high_half(high_half(scaled, scaled), e.slope) + e.start - (halvings << NOISE_POINT));
        const uint64_t limit = noise_power((uint64_t)(z & ~(z >> 63)));
        const int accepted = chance + margin < limit, rejected = chance > limit + margin;
        const int twice = (int)(negative & (size == 0)); /* zero has only one sign */
        const int undecided = (run == 0) | !(accepted | rejected);
        values[i] = (int64_t)((size ^ (0 - negative)) + negative);
        verdicts[i] = (uint8_t)((undecided ? NOISE_UNDECIDED : accepted) & (twice - 1));
    }
}

#endif
