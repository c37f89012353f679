/* verilator lint_off WIDTH */
/* verilator lint_off UNOPTFLAT */
// The first and the last of N ranks of 16 bits as fixed function, written by hand.
module tree_by_hand #(parameter N = 16, parameter K = 4, parameter LAST = 1) (
  input  wire clk,
  input  wire reset,
  input  wire push,
  input  wire [K-1:0] push_at,
  input  wire pop,
  input  wire [K-1:0] pop_at,
  input  wire [15:0] packet_remaining,
  output wire some,
  output wire [K-1:0] first,
  output wire [K-1:0] last
);
  reg [15:0] ranks [0:N-1];
  reg [N-1:0] there;
  integer i;
  always @(posedge clk) begin
    for (i = 0; i < N; i = i + 1) begin
      if (push & push_at == i) ranks[i] <= packet_remaining;
      if (reset) there[i] <= 1'b0;
      else if (push & push_at == i) there[i] <= 1'b1;
      else if (pop & pop_at == i) there[i] <= 1'b0;
    end
  end

  // A heap of comparators: node 1 is the root, nodes N to 2N-1 are the entries.
  wire [16:0] low [1:2*N-1], high [1:2*N-1];
  wire [K-1:0] low_at [1:2*N-1], high_at [1:2*N-1];
  genvar g;
  generate
    for (g = 0; g < N; g = g + 1) begin : leaf
      assign low[N+g] = {~there[g], ranks[g]};
      assign high[N+g] = {there[g], ranks[g]};
      assign low_at[N+g] = g;
      assign high_at[N+g] = g;
    end
    for (g = 1; g < N; g = g + 1) begin : node
      wire is_left = low[2*g] <= low[2*g+1];
      assign low[g] = is_left ? low[2*g] : low[2*g+1];
      assign low_at[g] = is_left ? low_at[2*g] : low_at[2*g+1];
      if (LAST) begin : greatest
        wire is_last = high[2*g] >= high[2*g+1];
        assign high[g] = is_last ? high[2*g] : high[2*g+1];
        assign high_at[g] = is_last ? high_at[2*g] : high_at[2*g+1];
      end
    end
  endgenerate
  assign some = ~low[1][16];
  assign first = low_at[1];
  assign last = high_at[1];
endmodule
/* verilator lint_on WIDTH */
