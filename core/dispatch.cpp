// placeholder reference
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
#include "sparsemax.hpp"
namespace zerotail {
namespace {
using Real = long double;
float half_to_float(std::uint16_t h){ std::uint32_t s=(h&0x8000u)<<16,e=(h>>10)&31,m=h&1023; float f; std::uint32_t b; if(e==31)b=s|0x7f800000u|(m<<13); else if(e==0){ f=std::ldexp((float)m,-24); return s?-f:f;} else b=s|((e+112)<<23)|(m<<13); std::memcpy(&f,&b,4); return f;}
std::uint16_t float_to_half(float f){ _Float16 h=(_Float16)f; std::uint16_t u; std::memcpy(&u,&h,2); return u;}
float bf_to_float(std::uint16_t h){ std::uint32_t b=(std::uint32_t)h<<16; float f; std::memcpy(&f,&b,4); return f;}
std::uint16_t float_to_bf(float f){ std::uint32_t b; std::memcpy(&b,&f,4); if(f!=f) return 0x7fc0; b+=0x7fff+((b>>16)&1); return (std::uint16_t)(b>>16);}
Real get(Type t,const void*a,std::int64_t i){ switch(t){case Type::f32:return ((const float*)a)[i];case Type::f64:return ((const double*)a)[i];case Type::f16:return half_to_float(((const std::uint16_t*)a)[i]);default:return bf_to_float(((const std::uint16_t*)a)[i]);}}
void put(Type t,void*a,std::int64_t i,Real x){ switch(t){case Type::f32:((float*)a)[i]=(float)x;return;case Type::f64:((double*)a)[i]=(double)x;return;case Type::f16:((std::uint16_t*)a)[i]=float_to_half((float)x);return;default:((std::uint16_t*)a)[i]=float_to_bf((float)x);}}
void putc_(Type t,void*a,std::int64_t i,Real x){ if(t==Type::f64)((double*)a)[i]=(double)x; else ((float*)a)[i]=(float)x;}
Real tau_of(std::vector<Real> z,std::int64_t&n){ n=0; for(Real x:z) if(std::isnan(x)) return NAN; std::sort(z.begin(),z.end(),[](Real a,Real b){return a>b;}); if(z.empty()||!std::isfinite(z[0])) return NAN; Real m=z[0],s=0,t=0; for(std::size_t k=1;k<=z.size();++k){ Real d=z[k-1]-m; if(!(1+k*d>s+d)) break; s+=d; n=(std::int64_t)k; t=(s-1)/k;} return m+t; }
template<class F> void each(Shape s,F f){ for(std::int64_t o=0;o<s.outer;++o) for(std::int64_t i=0;i<s.inner;++i) f(o*s.inner+i,o*s.cols*s.inner+i); }
std::vector<Real> row(Type t,const void*z,Shape s,std::int64_t b){ std::vector<Real> r((std::size_t)s.cols); for(std::int64_t j=0;j<s.cols;++j) r[(std::size_t)j]=get(t,z,b+j*s.inner); return r;}
}
void sparsemax(Type t,const void*z,void*p,Shape s,const Parallel&){ each(s,[&](std::int64_t,std::int64_t b){ auto r=row(t,z,s,b); std::int64_t n; Real tau=tau_of(r,n); for(std::int64_t j=0;j<s.cols;++j){ Real x=r[(std::size_t)j]-tau; put(t,p,b+j*s.inner,tau!=tau?tau:(x>0?x:0)); }});}
void threshold(Type t,const void*z,void*hi,void*lo,std::int64_t*size,Shape s,const Parallel&){ each(s,[&](std::int64_t r,std::int64_t b){ std::int64_t n; Real tau=tau_of(row(t,z,s,b),n); Real h=t==Type::f64?(Real)(double)tau:(Real)(float)tau; if(hi)putc_(t,hi,r,h); if(lo)putc_(t,lo,r,tau!=tau?0:tau-h); if(size)size[r]=n;});}
void compact(Type t,const void*z,const void*hi,const void*lo,const std::int64_t*off,void*v,std::int32_t*idx,std::int64_t rows,std::int64_t cols,const Parallel&){ for(std::int64_t r=0;r<rows;++r){ std::int64_t k=off[r]; Type c=t==Type::f64?Type::f64:Type::f32; Real tau=get(c,hi,r)+get(c,lo,r); for(std::int64_t j=0;j<cols&&k<off[r+1];++j){ Real x=get(t,z,r*cols+j)-tau; if(x>0){put(t,v,k,x); idx[k++]=(std::int32_t)j;} } }}
void jvp(Type t,const void*p,const void*v,void*out,Shape s,const Parallel&){ each(s,[&](std::int64_t,std::int64_t b){ auto pr=row(t,p,s,b),vr=row(t,v,s,b); Real sum=0; std::int64_t n=0; for(std::size_t j=0;j<pr.size();++j) if(pr[j]>0){sum+=vr[j];++n;} Real m=n?sum/n:0; for(std::int64_t j=0;j<s.cols;++j) put(t,out,b+j*s.inner,pr[(std::size_t)j]>0?vr[(std::size_t)j]-m:pr[(std::size_t)j]*0); });}
static void loss_row(Type t,const void*z,Shape s,std::int64_t r,std::int64_t b,const std::vector<Real>&q,void*loss,void*grad){ auto zr=row(t,z,s,b); std::int64_t n; Real tau=tau_of(zr,n),L=tau!=tau?tau:0; for(std::int64_t j=0;j<s.cols;++j){ Real p=zr[(std::size_t)j]-tau; Real qj=q[(std::size_t)j]; if(tau!=tau)p=tau; else if(p<=0){ if(qj!=0)L+=qj*(-p); p=0;} L+=(p-qj)*(p-qj)/2; if(grad)put(t,grad,b+j*s.inner,p-qj);} putc_(t,loss,r,L);}
void loss_labels(Type t,const void*z,const std::int64_t*y,std::int64_t ignore,void*loss,void*grad,Shape s,const Parallel&){ each(s,[&](std::int64_t r,std::int64_t b){ if(y[r]==ignore&&ignore!=no_label){putc_(t,loss,r,0); if(grad)for(std::int64_t j=0;j<s.cols;++j)put(t,grad,b+j*s.inner,0); return;} std::vector<Real> q((std::size_t)s.cols,0); if(y[r]<0||y[r]>=s.cols){putc_(t,loss,r,NAN); if(grad)for(std::int64_t j=0;j<s.cols;++j)put(t,grad,b+j*s.inner,NAN); return;} q[(std::size_t)y[r]]=1; loss_row(t,z,s,r,b,q,loss,grad);});}
void loss_target(Type t,const void*z,const void*q,void*loss,void*grad,Shape s,const Parallel&){ each(s,[&](std::int64_t r,std::int64_t b){ loss_row(t,z,s,r,b,row(t,q,s,b),loss,grad);});}
static const char* names[]={"baseline",nullptr};
const char* const* targets(){return names;}
const char* target(){return names[0];}
bool use_target(const char*n){return !std::strcmp(n,"baseline");}
}
