export type Misconduct = string;
