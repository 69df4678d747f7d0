/* Four AES blocks side by side on ARMv8 with the cryptographic extension. See lanes_x86.h for the contract. */
#include <arm_neon.h>

#if defined(__linux__)
#define TARGET __attribute__((target("+crypto")))
#else
#define TARGET
#endif
#define NAME(x) x##_armv8
#define REGISTERS 4
#define IN_FLIGHT 2
#define LANE_FN TARGET static inline __attribute__((always_inline))
#define V4 NAME(v4)
typedef struct { uint8x16_t r[REGISTERS]; } V4;

#define EACH(expression) V4 out; for (int i = 0; i < REGISTERS; i++) out.r[i] = (expression); return out
#define AS32(x) vreinterpretq_u32_u8(x)
#define AS64(x) vreinterpretq_u64_u8(x)
#define FROM32(x) vreinterpretq_u8_u32(x)
#define FROM64(x) vreinterpretq_u8_u64(x)

LANE_FN V4 NAME(v_load)(const uint8_t *p) { EACH(vld1q_u8(p + 16 * i)); }
LANE_FN void NAME(v_store)(uint8_t *p, V4 a) { for (int i = 0; i < REGISTERS; i++) vst1q_u8(p + 16 * i, a.r[i]); }
LANE_FN V4 NAME(v_bcast)(const uint8_t *p) { EACH(vld1q_u8(p)); }
LANE_FN V4 NAME(v_xor)(V4 a, V4 b) { EACH(veorq_u8(a.r[i], b.r[i])); }
LANE_FN V4 NAME(v_and)(V4 a, V4 b) { EACH(vandq_u8(a.r[i], b.r[i])); }
LANE_FN V4 NAME(v_add32)(V4 a, V4 b) { EACH(FROM32(vaddq_u32(AS32(a.r[i]), AS32(b.r[i])))); }
LANE_FN V4 NAME(v_sub32)(V4 a, V4 b) { EACH(FROM32(vsubq_u32(AS32(a.r[i]), AS32(b.r[i])))); }
LANE_FN V4 NAME(v_add64)(V4 a, V4 b) { EACH(FROM64(vaddq_u64(AS64(a.r[i]), AS64(b.r[i])))); }
LANE_FN V4 NAME(v_sub64)(V4 a, V4 b) { EACH(FROM64(vsubq_u64(AS64(a.r[i]), AS64(b.r[i])))); }

/* x86 adds the round key after the round, ARM before it: a zero key and an explicit XOR give the order of x86. */
LANE_FN V4 NAME(v_aes)(V4 a, V4 k) { EACH(veorq_u8(vaesmcq_u8(vaeseq_u8(a.r[i], vdupq_n_u8(0))), k.r[i])); }
LANE_FN V4 NAME(v_aeslast)(V4 a, V4 k) { EACH(veorq_u8(vaeseq_u8(a.r[i], vdupq_n_u8(0)), k.r[i])); }

/* sigma(hi || lo) = (hi ^ lo || hi) */
LANE_FN V4 NAME(v_sigma)(V4 a, V4 high) {
    EACH(veorq_u8(vextq_u8(a.r[i], a.r[i], 8), vandq_u8(a.r[i], high.r[i])));
}

/* All ones in every block whose first 32-bit word has bit `bit` set. */
LANE_FN V4 NAME(v_bit)(V4 a, int bit) {
    EACH(vreinterpretq_u8_s32(vshrq_n_s32(
        vshlq_s32(vdupq_n_s32((int32_t)vgetq_lane_u32(AS32(a.r[i]), 0)), vdupq_n_s32(31 - bit)), 31)));
}

/* All ones in every block whose lowest bit is set. */
LANE_FN V4 NAME(v_control)(V4 a) { return NAME(v_bit)(a, 0); }

/* acc + x or acc - x in the lanes whose bit is set, as on x86. */
static const uint32_t NAME(bits32)[16] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
static const uint64_t NAME(bits64)[8] = {1, 2, 4, 8, 16, 32, 64, 128};

LANE_FN V4 NAME(v_where32)(const uint8_t *bits, V4 x) {
    uint32_t word;
    memcpy(&word, bits, sizeof word);
    EACH(vandq_u8(FROM32(vtstq_u32(vdupq_n_u32(word), vld1q_u32(NAME(bits32) + 4 * i))), x.r[i]));
}
LANE_FN V4 NAME(v_where64)(const uint8_t *bits, V4 x) {
    EACH(vandq_u8(FROM64(vtstq_u64(vdupq_n_u64(*bits), vld1q_u64(NAME(bits64) + 2 * i))), x.r[i]));
}
LANE_FN V4 NAME(v_add32_where)(V4 acc, const uint8_t *bits, V4 x) { return NAME(v_add32)(acc, NAME(v_where32)(bits, x)); }
LANE_FN V4 NAME(v_sub32_where)(V4 acc, const uint8_t *bits, V4 x) { return NAME(v_sub32)(acc, NAME(v_where32)(bits, x)); }
LANE_FN V4 NAME(v_add64_where)(V4 acc, const uint8_t *bits, V4 x) { return NAME(v_add64)(acc, NAME(v_where64)(bits, x)); }
LANE_FN V4 NAME(v_sub64_where)(V4 acc, const uint8_t *bits, V4 x) { return NAME(v_sub64)(acc, NAME(v_where64)(bits, x)); }

/* SubWord of a word that is in all four columns: with equal columns ShiftRows changes nothing. */
LANE_FN uint32_t NAME(sub_word)(uint32_t word) {
    return vgetq_lane_u32(AS32(vaeseq_u8(FROM32(vdupq_n_u32(word)), vdupq_n_u8(0))), 0);
}
