# Draws what loss and gradients cost against B and against d, from the CSV of
#     contrastive_bench --curves --benchmark_filter='^(info_nce|clip)/float/' --benchmark_format=csv
# Called with the variables csv and svg.

set terminal svg size 960,420 font "sans-serif,14" background "white"
set output svg
set datafile separator ","
set datafile missing NaN

# A benchmark is called loss/float/B:1024/d:256/manual_time.
after(name, key) = name[strstrt(name, key) + strlen(key):*]
number(name, key) = real(after(name, key)[1:strstrt(after(name, key), "/") - 1])
is(loss, name) = name[1:strlen(loss) + 1] eq loss."/"

# x where the other number has that value, in whatever order; times in ms.
x(loss, name, key, other, value) = \
  is(loss, name) && number(name, other) == value ? number(name, key) : NaN
ms(column_name) = column(column_name) / 1000

set logscale xy
set format y "%g"
set grid xtics ytics linecolor rgb "#dddddd" linetype 1
set border 3 linecolor rgb "#555555"
set mytics 1
set tics nomirror textcolor rgb "#333333"
set key bottom right Left reverse samplen 2 font ",13"
set style line 1 linecolor rgb "#d55e00" linewidth 2.5 pointtype 7 pointsize 0.6
set style line 2 linecolor rgb "#0072b2" linewidth 2.5 pointtype 7 pointsize 0.6
set style line 3 linecolor rgb "#555555" linewidth 2 dashtype 2

set multiplot layout 1,2
set ylabel "milliseconds"

set title "Cost against B, with d = 256"
set xlabel "B, pairs in the batch"
set xtics ("16" 16, "64" 64, "256" 256, "1024" 1024, "4096" 4096)
set xrange [12:11000]
plot csv using (x("clip", strcol("name"), "B:", "d:", 256)):(ms("real_time")) \
       smooth unique with linespoints linestyle 1 title "CLIP, loss and gradients", \
     csv using (x("info_nce", strcol("name"), "B:", "d:", 256)):(ms("real_time")) \
       smooth unique with linespoints linestyle 2 title "InfoNCE, loss and gradients", \
     csv using (x("info_nce", strcol("name"), "B:", "d:", 256)):(ms("bare_us")) \
       smooth unique with lines linestyle 3 title "three bare matrix products"

set title "Cost against d, with B = 1024"
set xlabel "d, columns of an embedding"
set xtics ("8" 8, "32" 32, "128" 128, "512" 512, "2048" 2048)
set xrange [6.5:2500]
plot csv using (x("clip", strcol("name"), "d:", "B:", 1024)):(ms("real_time")) \
       smooth unique with linespoints linestyle 1 title "CLIP, loss and gradients", \
     csv using (x("info_nce", strcol("name"), "d:", "B:", 1024)):(ms("real_time")) \
       smooth unique with linespoints linestyle 2 title "InfoNCE, loss and gradients", \
     csv using (x("info_nce", strcol("name"), "d:", "B:", 1024)):(ms("bare_us")) \
       smooth unique with lines linestyle 3 title "three bare matrix products"
unset multiplot
